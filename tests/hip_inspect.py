#!/usr/bin/env python3
"""Inspects the HIP code objects of a build: what can be known about them without AMD hardware.

    hip_inspect.py OBJECT.o...        objects made by cmake/hip.cmake

A kernel whose name contains "attention" must, on every architecture,
  * use no scratch: zero spilled registers, zero private segment,
  * have at most 2 KB of static LDS (the vote of a barrier takes 1): the rest is asked for at the launch, and
    tests/schedule_test.cpp holds that against what is left of 64 KB,
  * multiply with MFMA in a loop,
  * have global loads of the next tile in flight while that loop multiplies: somewhere in the loop an MFMA is issued
    with loads outstanding, counted as the hardware counts them (s_waitcnt vmcnt) along the paths through the loop.
Every other kernel must not spill and must fit its static LDS into 64 KB. Prints a table; exit code 1 if a rule is
broken, 77 if there is nothing to inspect.
"""
import dataclasses
import functools
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

LDS_BYTES = 64 * 1024
STATIC_LDS_BYTES = 2 * 1024  # of attention kernels
MOST_COUNTED_LOADS = 63  # what vmcnt can hold
SKIPPED = 77


def tool(name):
    for candidate in (f"{name}-19", name, f"/opt/rocm/llvm/bin/{name}"):
        if shutil.which(candidate):
            return candidate
    sys.exit(f"hip_inspect: {name} not found (Debian: llvm-19, clang-tools-19)")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@dataclasses.dataclass
class Kernel:
    architecture: str
    symbol: str
    name: str = ""
    metadata: dict = dataclasses.field(default_factory=dict)
    code: list = dataclasses.field(default_factory=list)  # (address, mnemonic, operands)

    @functools.cached_property
    def in_flight(self):
        loop = multiplying_loop(self)
        return loads_in_flight(self, *loop) if loop else 0

    @functools.cached_property
    def positions(self):
        return {address: i for i, (address, _, _) in enumerate(self.code)}

    def number(self, key):
        return self.metadata.get(key, 0)


def code_objects(object_file, folder):
    """(architecture, path) of every code object in the fat binary of a host object."""
    if ".hip_fatbin" not in output(tool("llvm-readelf"), "--sections", "--wide", str(object_file)):
        return  # host code only
    fat = folder / "fat.hipfb"
    output(tool("llvm-objcopy"), f"--dump-section=.hip_fatbin={fat}", str(object_file), "/dev/null")
    bundler = tool("clang-offload-bundler")
    for target in output(bundler, "--type=o", f"--input={fat}", "--list").split():
        if "amdgcn" not in target:
            continue
        architecture = target.split("-")[-1]
        path = folder / f"{Path(object_file).name}.{architecture}"
        output(bundler, "--type=o", f"--targets={target}", f"--input={fat}", f"--output={path}", "--unbundle")
        yield architecture, path


def kernels_of(architecture, path):
    found = {}
    fields = {}
    for line in output(tool("llvm-readelf"), "--notes", str(path)).splitlines():
        match = re.match(r"\s+(?:- )?\.(\w+):\s+'?([^']*)'?$", line)
        if not match:
            continue
        key, value = match.groups()
        # Fields of a kernel stand in alphabetical order around its .symbol; .wavefront_size is the last one.
        fields[key] = int(value) if value.isdigit() else value
        if key == "wavefront_size":
            symbol = fields["symbol"].removesuffix(".kd")
            found[symbol] = Kernel(architecture, symbol, metadata=fields)
            fields = {}
    current = None
    for line in output(tool("llvm-objdump"), "-d", "--no-show-raw-insn", str(path)).splitlines():
        if match := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            current = found.get(match[1], current if ".L" in match[1] else None)
        elif current and (match := re.match(r"\s+(\w+)\s*(.*?)\s*// ([0-9A-F]+):", line)):
            current.code.append((int(match[3], 16), match[1], match[2] + line[match.end():]))
    names = output(tool("llvm-cxxfilt"), *found).splitlines() if found else []
    for kernel, name in zip(found.values(), names):
        name = name.removeprefix("void ").replace("(anonymous namespace)::", "").replace("raggedmla::", "")
        name = re.sub(r"\([\w:]+\)(?=-?\d)", "", name)  # the casts of enumerators among template arguments
        kernel.name = re.sub(r"\(.*", "", name)
    return list(found.values())


def branch_target(kernel, index):
    """Position that the branch at `index` leads to, None if the instruction is no branch."""
    _, mnemonic, operands = kernel.code[index]
    if not mnemonic.startswith(("s_cbranch", "s_branch")):
        return None
    match = re.search(r"<[^>]*?(?:\+0x([0-9a-f]+))?>", operands)
    return kernel.positions.get(kernel.code[0][0] + int(match[1] or "0", 16)) if match else None


def loops(kernel):
    """Instruction ranges closed by a backward branch, as (first, last) positions, shortest first."""
    found = {(target, i) for i in range(len(kernel.code))
             if (target := branch_target(kernel, i)) is not None and target <= i}
    return sorted(found, key=lambda loop: loop[1] - loop[0])


def loads_in_flight(kernel, first, last):
    """Most global loads that can be outstanding when an MFMA of the loop is issued, over all paths through its body
    (a forward data-flow pass; a load adds one, s_waitcnt vmcnt(n) leaves at most n)."""
    entering = {first: 0}
    most = 0
    work = [first]
    while work:
        i = work.pop()
        outstanding = entering[i]
        _, mnemonic, operands = kernel.code[i]
        if re.match(r"(global|buffer|flat)_load", mnemonic):
            outstanding = min(outstanding + 1, MOST_COUNTED_LOADS)
        elif mnemonic == "s_waitcnt" and (match := re.search(r"vmcnt\((\d+)\)", operands)):
            outstanding = min(outstanding, int(match[1]))
        elif mnemonic.startswith("v_mfma"):
            most = max(most, outstanding)
        following = [branch_target(kernel, i)]
        if mnemonic not in ("s_branch", "s_endpgm"):
            following.append(i + 1)
        for j in following:
            if j is not None and first <= j <= last and entering.get(j, -1) < outstanding:
                entering[j] = outstanding
                work.append(j)
    return most


def multiplying_loop(kernel):
    """The innermost loop that multiplies and loads, or the innermost that multiplies; None without MFMA in a loop."""
    def holds(loop, pattern):
        return any(re.match(pattern, mnemonic) for _, mnemonic, _ in kernel.code[loop[0]:loop[1] + 1])
    multiplying = [loop for loop in loops(kernel) if holds(loop, "v_mfma")]
    loading = [loop for loop in multiplying if holds(loop, "(global|buffer|flat)_load")]
    return next(iter(loading + multiplying), None)


def broken_rules(kernel):
    if kernel.number("vgpr_spill_count"):
        yield f"{kernel.number('vgpr_spill_count')} spilled VGPRs"
    if kernel.number("group_segment_fixed_size") > LDS_BYTES:
        yield f"{kernel.number('group_segment_fixed_size')} bytes of LDS"
    if "attention" not in kernel.name:
        return
    if kernel.number("private_segment_fixed_size"):
        yield f"{kernel.number('private_segment_fixed_size')} bytes of scratch"
    if kernel.number("group_segment_fixed_size") > STATIC_LDS_BYTES:
        yield f"{kernel.number('group_segment_fixed_size')} bytes of static LDS beside what the launch asks for"
    if not multiplying_loop(kernel):
        yield "no MFMA in a loop"
    elif not kernel.in_flight:
        yield "no global load in flight while the loop multiplies"


def main(objects):
    kernels = []
    with tempfile.TemporaryDirectory() as folder:
        for object_file in objects:
            for architecture, path in code_objects(object_file, Path(folder)):
                kernels += kernels_of(architecture, path)
    if not kernels:
        print("hip_inspect: SKIPPED, no kernels in", *objects)
        return SKIPPED
    print(f"{'arch':8}{'VGPR':>5}{'AGPR':>5}{'spill':>6}{'scratch':>8}{'LDS':>7}{'MFMA':>6}{'flying':>7}  kernel")
    failures = 0
    for kernel in sorted(kernels, key=lambda k: (k.name, k.architecture)):
        mfma = sum(mnemonic.startswith("v_mfma") for _, mnemonic, _ in kernel.code)
        print(f"{kernel.architecture:8}{kernel.number('vgpr_count'):5}{kernel.number('agpr_count'):5}"
              f"{kernel.number('vgpr_spill_count'):6}{kernel.number('private_segment_fixed_size'):8}"
              f"{kernel.number('group_segment_fixed_size'):7}{mfma:6}{kernel.in_flight:7}  {kernel.name}")
        for rule in broken_rules(kernel):
            failures += 1
            print(f"{'':8}BROKEN: {rule}")
    attention = sum("attention" in kernel.name for kernel in kernels)
    print(f"{len(kernels)} kernels inspected, {attention} of them attention; {failures} rules broken")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
