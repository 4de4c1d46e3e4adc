#!/usr/bin/env python3
"""Runs cases of the test tables on the gfx942 code objects of a HIP build, in an emulator, on a CPU.

    run.py RUNTIME TESTS [--gtest_...]     libraries made by tests/emulator/CMakeLists.txt

Opt-in: TINYGRAD_DIR names a checkout of tinygrad's git repository, whose emulator of AMD GPUs (test/mockgpu/amd/emu.py)
executes the machine code; exit code 77 (skipped) without it. What passes here is called "emulated": instructions do what
the ISA's documents say, one workgroup after the other; nothing is known about speed, races or a real card.
"""
import ctypes
import functools
import mmap
import os
import re
import subprocess
import struct
import sys
import tempfile
import traceback
from pathlib import Path

SKIPPED = 77
ARCHITECTURE = "gfx942"
R_AMDGPU_RELATIVE64 = 13
# User registers in the order in which a wave finds them: bit of the kernel's properties -> words.
USER_REGISTERS = {"private_segment_buffer": 4, "dispatch_ptr": 2, "queue_ptr": 2, "kernarg_segment_ptr": 2,
                  "dispatch_id": 2, "flat_scratch_init": 2, "private_segment_size": 1}


class CodeObject:
    """An ELF image in memory, as a loader would put it there."""

    def __init__(self, elf):
        program_headers, = struct.unpack_from("<Q", elf, 0x20)
        entry_size, entries = struct.unpack_from("<HH", elf, 0x36)
        segments, dynamic = [], None
        for i in range(entries):
            kind, _, offset, address, _, file_size, memory_size, _ = struct.unpack_from(
                "<IIQQQQQQ", elf, program_headers + i * entry_size)
            if kind == 1:
                segments.append((offset, address, file_size, memory_size))
            elif kind == 2:
                dynamic = address
        size = max(address + memory for _, address, _, memory in segments)
        self.memory = ctypes.create_string_buffer(size + 4096)
        self.base = (ctypes.addressof(self.memory) + 4095) & ~4095
        self.size = size
        for offset, address, file_size, _ in segments:
            ctypes.memmove(self.base + address, elf[offset:offset + file_size], file_size)
        self.relocate(dynamic)
        with tempfile.NamedTemporaryFile() as file:
            file.write(elf)
            file.flush()
            notes = subprocess.run(["llvm-readelf-19", "--notes", "--symbols", "--wide", file.name], check=True,
                                   capture_output=True, text=True).stdout
        self.symbols = {name: int(value, 16)
                        for value, name in re.findall(r"^\s*\d+: ([0-9a-f]{16}) .* (\S+)$", notes, re.M)}
        self.arguments = dict(kernel_arguments(notes))

    def relocate(self, dynamic):
        table = {}
        while dynamic is not None:
            tag, value = struct.unpack("<QQ", ctypes.string_at(self.base + dynamic, 16))
            if tag == 0:
                break
            table[tag] = value
            dynamic += 16
        for at in range(table.get(7, 0), table.get(7, 0) + table.get(8, 0), 24):
            offset, info, addend = struct.unpack("<QQq", ctypes.string_at(self.base + at, 24))
            if info & 0xFFFFFFFF != R_AMDGPU_RELATIVE64:
                raise NotImplementedError(f"relocation {info:#x}")
            ctypes.memmove(self.base + offset, struct.pack("<Q", self.base + addend), 8)


def kernel_arguments(notes):
    """(symbol, [(offset, size, kind)]) of every kernel in the metadata."""
    arguments, argument = [], {}
    for key, value in re.findall(r"^ +(?:- )?\.(\w+): +'?([^'\n]*)'?$", notes, re.M):
        if key in ("offset", "size", "value_kind"):
            argument[key] = value
            if len(argument) == 3:
                arguments.append((int(argument["offset"]), int(argument["size"]), argument["value_kind"]))
                argument = {}
        elif key == "symbol":
            yield value.removesuffix(".kd"), arguments
            arguments = []


@functools.cache
def code_object(bundle):
    """The gfx942 image in an offload bundle at an address."""
    count, = struct.unpack("<Q", ctypes.string_at(bundle + 24, 8))
    at = bundle + 32
    for _ in range(count):
        offset, size, name_size = struct.unpack("<QQQ", ctypes.string_at(at, 24))
        name = ctypes.string_at(at + 24, name_size).decode()
        at += 24 + name_size
        if name.split("-")[-1].split(":")[0] == ARCHITECTURE:
            return CodeObject(ctypes.string_at(bundle + offset, size))
    raise LookupError(f"no image for {ARCHITECTURE}")


def kernel_argument_segment(layout, arguments, grid, block, shared_bytes):
    """The argument segment of a launch: the caller's arguments, then what the compiler adds."""
    dimensions = 1 + max((i for i in range(3) if grid[i] * block[i] > 1), default=0)
    hidden = {"hidden_grid_dims": dimensions, "hidden_dynamic_lds_size": shared_bytes}
    for i, axis in enumerate("xyz"):
        hidden["hidden_block_count_" + axis] = grid[i]
        hidden["hidden_group_size_" + axis] = block[i]
    segment = ctypes.create_string_buffer(max(offset + size for offset, size, _ in layout) + 256)
    own = 0
    for offset, size, kind in layout:
        if kind.startswith("hidden_"):
            segment[offset:offset + size] = hidden.get(kind, 0).to_bytes(size, "little")
        else:
            segment[offset:offset + size] = ctypes.string_at(arguments[own], size)
            own += 1
    return segment


def adapt_instruction(address):
    """What the emulator does not read as compilers mean it, rewritten in place before it is decoded:
      * s_getpc_b64 d; s_add_u32 d, d, low; s_addc_u32 d + 1, d + 1, high    is two moves of the address;
      * the scalar address of a flat access, which hardware ignores, is 'none'."""
    words = (ctypes.c_uint32 * 5).from_address(address)
    if words[0] & 0xFC00C000 == 0xDC000000:
        words[1] |= 0x7F << 16
    elif words[0] & 0xFF80FFFF == 0xBE801C00:
        low = words[0] >> 16 & 0x7F
        high = low + 1
        if (words[1], words[3]) == (0x8000FF00 | low << 16 | low, 0x8200FF00 | high << 16 | high):
            target = address + 4 + (words[4] << 32 | words[2])
            words[:] = [0xBE8000FF | low << 16, target & 0xFFFFFFFF,
                        0xBE8000FF | high << 16, target >> 32 & 0xFFFFFFFF, 0xBF800000]


def adapt(emulator):
    """Makes the emulator take what compilers make. Lanes that are switched off still load from LDS, wherever their
    registers point: LDS lies at the start of as much memory as 32 bits address."""
    decode, buffer = emulator._decode_at, emulator.Buffer  # pylint: disable=protected-access
    memory = mmap.mmap(-1, (1 << 32) + (1 << 17), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    local_data = ctypes.c_char.from_buffer(memory)  # keeps the mapping

    def decode_adapted(address, architecture):
        adapt_instruction(address)
        return decode(address, architecture)

    after_memory = False  # LDS is made right after the buffer that stands for all memory

    def buffer_adapted(device, size, kind, *rest, **options):
        nonlocal after_memory
        if after_memory:
            options["options"] = emulator.BufferSpec(external_ptr=ctypes.addressof(local_data))
            ctypes.memset(ctypes.addressof(local_data), 0, 4 * size)
        after_memory = size == 1 << 40
        return buffer(device, size, kind, *rest, **options)

    emulator._decode_at, emulator.Buffer = decode_adapted, buffer_adapted  # pylint: disable=protected-access
    adapt_accumulators(emulator)


def adapt_accumulators(emulator):
    """The emulator takes the factors of matrix products and what is stored to LDS from the ordinary registers even if
    the instruction's `acc` bits name the accumulators."""
    def accumulators(instruction):
        kind = type(instruction)
        if kind.__name__ == "DS":
            return [kind.data0, kind.data1] if instruction.acc else []
        return [field for bit, field in enumerate((kind.src0, kind.src1)) if int(instruction.acc) >> bit & 1]

    def adapted(compile_instruction):
        def compile_adapted(instruction, context):
            fields, numbers = accumulators(instruction), []

            class Context(type(context)):
                __slots__ = ()

                def inst_field(self, field, *rest):
                    number = super().inst_field(field, *rest)
                    if any(field is other for other in fields):
                        numbers.append(number)
                    return number

                def rvgpr_dyn(self, register, lane, valid=None):
                    taken_from = [register, *register.src]  # a field, or a field and what is added to it
                    if any(number is part for number in numbers for part in taken_from):
                        return self.raccvgpr_dyn(register, lane, valid)
                    return super().rvgpr_dyn(register, lane, valid)

            if fields:
                context.__class__ = Context
            return compile_instruction(instruction, context)
        return compile_adapted

    # pylint: disable=protected-access
    emulator._compile_mfma = adapted(emulator._compile_mfma)
    emulator._INST_HANDLERS[emulator.irc.DS] = adapted(emulator._INST_HANDLERS[emulator.irc.DS])


def launch(emulator, bundle, symbol, grid, block, shared_bytes, arguments):
    image = code_object(bundle)
    segment = kernel_argument_segment(image.arguments[symbol], arguments, grid, block, shared_bytes)
    descriptor = ctypes.string_at(image.base + image.symbols[symbol + ".kd"], 64)
    static_bytes, scratch_bytes = struct.unpack_from("<II", descriptor, 0)
    entry, = struct.unpack_from("<q", descriptor, 16)
    resources, properties = struct.unpack_from("<IH", descriptor, 52)
    user = []
    for bit, (name, words) in enumerate(USER_REGISTERS.items()):
        if properties >> bit & 1:
            address = ctypes.addressof(segment) if name == "kernarg_segment_ptr" else 0
            user += [address >> 32 * word & 0xFFFFFFFF for word in range(words)]
    lds = (static_bytes + shared_bytes + 511) // 512
    resources = resources & ~(0x1FF << 15) | lds << 15
    start = image.base + image.symbols[symbol + ".kd"] + entry
    return emulator.run_asm(start, image.size, *grid, *block, ctypes.addressof(segment), resources, scratch_bytes,
                            arch="cdna", user_data=user)


def main(runtime_path=None, tests_path=None, *options):
    folder = os.environ.get("TINYGRAD_DIR", "")
    if not (Path(folder) / "test/mockgpu/amd/emu.py").exists():
        print("emulator: SKIPPED, TINYGRAD_DIR does not name a checkout of tinygrad's git repository")
        return SKIPPED
    if tests_path is None:
        print("emulator: SKIPPED, CMake was configured without TINYGRAD_DIR")
        return SKIPPED
    sys.path.insert(0, folder)
    from test.mockgpu.amd import emu  # pylint: disable=import-outside-toplevel

    adapt(emu)
    launches = 0

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint),
                      ctypes.POINTER(ctypes.c_uint), ctypes.c_uint, ctypes.POINTER(ctypes.c_void_p))
    def launcher(bundle, symbol, grid, block, shared_bytes, arguments):
        nonlocal launches
        launches += 1
        try:
            return launch(emu, bundle, symbol.decode(), grid[:3], block[:3], shared_bytes, arguments)
        except Exception:  # nothing may pass through C
            traceback.print_exc()
            return 1

    runtime = ctypes.CDLL(runtime_path, mode=ctypes.RTLD_GLOBAL)
    runtime.emulator_set_launcher(launcher)
    tests = ctypes.CDLL(tests_path)
    words = [b"emulated", *(option.encode() for option in options)]
    status = tests.run_tests(len(words), (ctypes.c_char_p * (len(words) + 1))(*words, None))
    print(f"{launches} launches emulated")
    return status if launches else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
