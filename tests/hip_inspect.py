#!/usr/bin/env python3
"""Inspects the HIP code objects of a build: what can be known about them without AMD hardware.

    hip_inspect.py OBJECT.o...        objects made by cmake/hip.cmake

A kernel whose name contains "attention" must, on every architecture,
  * use no scratch: zero spilled registers, zero private segment,
  * fit its static LDS into 64 KB,
  * multiply with MFMA in a loop,
  * have global loads of the next tile in flight while that loop multiplies: somewhere in the loop an MFMA is issued
    with loads outstanding, counted as the hardware counts them (s_waitcnt vmcnt).
Every other kernel must not spill. Prints a table; exit code 1 if a rule is broken, 77 if there is nothing to inspect.
"""
import dataclasses
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

LDS_BYTES = 64 * 1024
SKIPPED = 77


def tool(name):
    for candidate in (f"{name}-19", name, f"/opt/rocm/llvm/bin/{name}"):
        if shutil.which(candidate):
            return candidate
    sys.exit(f"hip_inspect: {name} not found (Debian: llvm-19, clang-19)")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@dataclasses.dataclass
class Kernel:
    architecture: str
    symbol: str
    name: str = ""
    metadata: dict = dataclasses.field(default_factory=dict)
    code: list = dataclasses.field(default_factory=list)  # (address, mnemonic, operands)

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
        kernel.name = re.sub(r"\(.*", "", name)
    return list(found.values())


def loops(kernel):
    """Instruction ranges closed by a backward branch, as (first, last) positions."""
    position = {address: i for i, (address, _, _) in enumerate(kernel.code)}
    start = kernel.code[0][0] if kernel.code else 0
    for i, (address, mnemonic, operands) in enumerate(kernel.code):
        if not mnemonic.startswith(("s_cbranch", "s_branch")):
            continue
        if match := re.search(r"<[^>]*?(?:\+0x([0-9a-f]+))?>", operands):
            target = start + int(match[1] or "0", 16)
            if target <= address and target in position:
                yield position[target], i


def loads_in_flight(kernel, first, last):
    """Most global loads outstanding when an MFMA of the loop is issued; the body is walked twice to enter it warm."""
    outstanding = most = 0
    for turn in range(2):
        for _, mnemonic, operands in kernel.code[first:last + 1]:
            if re.match(r"(global|buffer|flat)_load", mnemonic):
                outstanding += 1
            elif mnemonic == "s_waitcnt" and (match := re.search(r"vmcnt\((\d+)\)", operands)):
                outstanding = min(outstanding, int(match[1]))
            elif mnemonic.startswith("v_mfma") and turn == 1:
                most = max(most, outstanding)
    return most


def broken_rules(kernel):
    if kernel.number("vgpr_spill_count"):
        yield f"{kernel.number('vgpr_spill_count')} spilled VGPRs"
    if "attention" not in kernel.name:
        return
    if kernel.number("private_segment_fixed_size"):
        yield f"{kernel.number('private_segment_fixed_size')} bytes of scratch"
    if kernel.number("group_segment_fixed_size") > LDS_BYTES:
        yield f"{kernel.number('group_segment_fixed_size')} bytes of LDS"
    multiplying = [(first, last) for first, last in loops(kernel)
                   if any(m.startswith("v_mfma") for _, m, _ in kernel.code[first:last + 1])]
    if not multiplying:
        yield "no MFMA in a loop"
    elif not any(loads_in_flight(kernel, first, last) for first, last in multiplying):
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
    print(f"{'arch':8}{'VGPR':>5}{'AGPR':>5}{'spill':>6}{'scratch':>8}{'LDS':>7}{'MFMA':>6}  kernel")
    failures = 0
    for kernel in sorted(kernels, key=lambda k: (k.name, k.architecture)):
        mfma = sum(mnemonic.startswith("v_mfma") for _, mnemonic, _ in kernel.code)
        print(f"{kernel.architecture:8}{kernel.number('vgpr_count'):5}{kernel.number('agpr_count'):5}"
              f"{kernel.number('vgpr_spill_count'):6}{kernel.number('private_segment_fixed_size'):8}"
              f"{kernel.number('group_segment_fixed_size'):7}{mfma:6}  {kernel.name}")
        for rule in broken_rules(kernel):
            failures += 1
            print(f"{'':8}BROKEN: {rule}")
    attention = sum("attention" in kernel.name for kernel in kernels)
    print(f"{len(kernels)} kernels inspected, {attention} of them attention; {failures} rules broken")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
