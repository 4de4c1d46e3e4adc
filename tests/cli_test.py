#!/usr/bin/env python3
"""The command line end to end: python3 cli_test.py path/to/raggedmla [unittest options]."""
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL = sys.argv.pop(1) if len(sys.argv) > 1 else "raggedmla"
CHECKOUT = Path(__file__).resolve().parent.parent
OK, CHECK_FAILED, BAD_INPUT, DEVICE_ERROR = 0, 1, 2, 3


def call(*arguments, **options):
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, **options)


def read_file(path):
    """Metadata and tensors {name: (dtype, shape, bytes)} of a safetensors file."""
    raw = Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8:8 + length])
    metadata = header.pop("__metadata__", {})
    data = raw[8 + length:]
    return metadata, {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


def write_file(path, metadata, tensors):
    header, offset = {"__metadata__": metadata}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


def golden(variable, name):
    return Path(os.environ.get(variable, CHECKOUT / ".." / "shared" / name))


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = Path(cls.folder.name)
        cls.workload = cls.path / "decode.safetensors"
        done = call("make-workload", cls.workload, "--layer", "hca", "--tensor-parallel", 16, "--context", 700,
                    "--batch", 2)
        assert done.returncode == OK, done.stderr

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def expect(self, done, code, message=""):
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertIn(message, done.stderr)
        if code != OK and code != CHECK_FAILED:
            self.assertEqual(done.stdout, "", "errors go to stderr alone")
        return done

    def changed(self, name, metadata=None, drop=(), **tensors):
        """A copy of the workload with other metadata or tensors."""
        old_metadata, old = read_file(self.workload)
        path = self.path / name
        kept = {key: value for key, value in {**old, **tensors}.items() if key not in drop}
        write_file(path, {**old_metadata, **(metadata or {})}, kept)
        return path


class Usage(Case):
    def test_help_and_version(self):
        self.assertIn("make-workload", self.expect(call("--help"), OK).stdout)
        self.assertRegex(self.expect(call("--version"), OK).stdout, r"^\d+\.\d+\.\d+")
        for command in ("info", "make-workload", "run", "verify", "bench"):
            self.assertIn("--json", self.expect(call(command, "--help"), OK).stdout)

    def test_bad_usage(self):
        self.expect(call(), BAD_INPUT, "subcommand is required")
        self.expect(call("walk"), BAD_INPUT)
        self.expect(call("run"), BAD_INPUT, "file is required")
        self.expect(call("run", self.workload, "--repeat", "-1"), BAD_INPUT, "--repeat")
        self.expect(call("run", self.workload, "--fast"), BAD_INPUT, "--fast")
        self.expect(call("run", self.workload, "--out-type", "f16"), BAD_INPUT, "--out-type")
        self.expect(call("run", self.workload, "--device", "tpu"), BAD_INPUT, "--device is 'tpu', expected cpu")
        self.expect(call("run", self.workload, "--kernel", "best"), BAD_INPUT, "--kernel is 'best'")
        self.expect(call("run", self.workload, "--device", "cuda:x"), BAD_INPUT, "expected a device number")
        self.expect(call("run", self.workload, "--kernel", "sm90"), BAD_INPUT, "kernel is sm90")
        self.expect(call("make-workload", self.path / "w", "--model", "nano"), BAD_INPUT, "--model")
        self.expect(call("bench", "--device", "reference"), BAD_INPUT, "the target is reference")
        self.expect(call("bench", "--suite", "nothing"), BAD_INPUT, "--suite is 'nothing', expected prefill or decode")

    def test_absent_device(self):
        self.expect(call("run", self.workload, "--device", "cuda:99"), DEVICE_ERROR, "--device is cuda:99")
        self.expect(call("bench", "--device", "hip:99"), DEVICE_ERROR, "--device is hip:99")


class Info(Case):
    def test_text_and_json(self):
        self.assertIn("cpu", self.expect(call("info"), OK).stdout)
        report = json.loads(self.expect(call("info", "--json"), OK).stdout)
        self.assertIn("reference", report["backends"])
        self.assertEqual(report["devices"][0]["device"], "cpu")
        self.assertEqual(report["devices"][0]["attention_kernels"], ["cpu", "reference"])


class MakeWorkload(Case):
    def test_same_seed_same_file(self):
        shape = ("--layer", "csa", "--phase", "prefill", "--tokens", 3, "--context", 600, "--tensor-parallel", 32)
        for name, seed in (("a", 5), ("b", 5), ("c", 6)):
            self.expect(call("make-workload", self.path / name, *shape, "--seed", seed), OK)
        self.assertEqual((self.path / "a").read_bytes(), (self.path / "b").read_bytes())
        self.assertNotEqual(read_file(self.path / "a")[1]["q"], read_file(self.path / "c")[1]["q"])

    def test_shapes(self):
        report = json.loads(self.expect(call("make-workload", self.path / "w", "--model", "pro", "--tensor-parallel", 8,
                                             "--batch", 3, "--context", 512, "--json"), OK).stdout)
        tensors = report["tensors"]
        self.assertEqual(tensors["q"]["shape"], [3, 16, 512])
        self.assertEqual(tensors["main_indices"]["shape"], [3, 128])
        self.assertEqual(tensors["extra_indices"]["shape"], [3, 1024])
        self.assertEqual(tensors["main_pages"]["shape"][1], 37440)
        self.assertEqual(report["metadata"]["op"], "decode")

    def test_impossible_shapes_and_places(self):
        self.expect(call("make-workload", self.path / "w", "--tensor-parallel", 7), BAD_INPUT, "divisor of the model's")
        self.expect(call("make-workload", self.path / "w", "--store", "flat"), BAD_INPUT, "flat store is for prefill")
        self.expect(call("make-workload", "/nonexistent/w"), BAD_INPUT, "/nonexistent/w: cannot be written")
        self.assertFalse((self.path / "w.partial").exists())


class Run(Case):
    def test_check_repeat_and_out(self):
        out = self.path / "out.safetensors"
        done = self.expect(call("run", self.workload, "--check", "--repeat", 2, "--out", out), OK)
        self.assertIn("check against reference: passed (all 2 queries)", done.stdout)
        self.assertIn("median of 2", done.stdout)
        _, tensors = read_file(out)
        self.assertEqual({name: t[:2] for name, t in tensors.items()},
                         {"out": ("BF16", [2, 4, 512]), "lse": ("F32", [2, 4]), "max_logits": ("F32", [2, 4])})

    def test_json(self):
        done = self.expect(call("run", self.workload, "--check", "--repeat", 1, "--json", "--out-type", "f32"), OK)
        report = json.loads(done.stdout)
        self.assertTrue(report["check"]["passed"])
        self.assertEqual(report["selected_rows"], 2 * (128 + 5))
        self.assertEqual(report["flop"], 4 * 4 * 512 * report["selected_rows"])
        self.assertGreater(report["gflop_per_second"], 0)

    def test_reference_device(self):
        self.assertIn("on reference", self.expect(call("run", self.workload, "--device", "reference"), OK).stdout)

    def test_sampled_check_says_so(self):
        done = self.expect(call("run", self.workload, "--check", "--check-queries", 1), OK)
        self.assertIn("a sample of 1 of 2 queries", done.stdout)

    def test_results_verify(self):
        """What run writes, added to its workload, is what verify expects."""
        out = self.path / "results.safetensors"
        self.expect(call("run", self.workload, "--out", out), OK)
        _, results = read_file(out)
        good = self.changed("good.safetensors", **results)
        self.assertIn("1 of 1 checks passed", self.expect(call("verify", good), OK).stdout)
        dtype, shape, data = results["out"]
        bad = self.changed("bad.safetensors", **{**results, "out": (dtype, shape, b"\0\0" + data[2:])})
        done = self.expect(call("verify", bad), CHECK_FAILED)
        self.assertIn("FAILED", done.stdout)
        report = json.loads(call("verify", bad, "--json").stdout)
        self.assertFalse(report["passed"])
        self.assertEqual((report["checks"][0]["worst_query"], report["checks"][0]["worst_head"]), (0, 0))
        wrong = self.changed("wrong.safetensors", out=("BF16", [1, 8, 512], data))
        self.expect(call("verify", wrong), BAD_INPUT, "out has not the shape")

    def test_bad_files(self):
        self.expect(call("run", self.path / "absent"), BAD_INPUT, "absent: cannot be opened")
        self.expect(call("run", self.path), BAD_INPUT, "is not a regular file")
        whole = self.workload.read_bytes()
        for length in (0, 5, 100, len(whole) - 1):
            cut = self.path / "cut.safetensors"
            cut.write_bytes(whole[:length])
            self.expect(call("run", cut), BAD_INPUT, "cut.safetensors: ")

    def test_bad_tensors_are_named(self):
        path = self.changed("f.safetensors", drop=("q",))
        self.expect(call("run", path), BAD_INPUT, "f.safetensors: has no tensor 'q'")
        path = self.changed("f.safetensors", metadata={"op": "fly"})
        self.expect(call("run", path), BAD_INPUT, "f.safetensors: metadata op is 'fly'")
        path = self.changed("f.safetensors", extra_lengths=("I32", [3], bytes(12)))
        self.expect(call("run", path), BAD_INPUT, "f.safetensors: attention: extra_lengths has shape [3], expected [2]")
        path = self.changed("f.safetensors", main_indices=("F32", [2, 1], bytes(8)))
        self.expect(call("run", path), BAD_INPUT, "f.safetensors: attention: main_indices is f32, expected i32 or i64")
        path = self.changed("f.safetensors", main_pages=("U8", [1, 100], bytes(100)))
        self.expect(call("run", path), BAD_INPUT, "f.safetensors: attention: main_pages")
        path = self.changed("f.safetensors", q=("F16", [2, 4, 512], bytes(8192)))
        self.expect(call("run", path), BAD_INPUT, "f.safetensors: tensor 'q' has dtype F16, expected")
        path = self.changed("f.safetensors", q=("BF16", [8, 512], bytes(8192)))
        self.expect(call("run", path), BAD_INPUT, "f.safetensors: attention: q has shape [8, 512]")

    def test_hostile_lists_select_nothing(self):
        garbage = struct.pack("<256i", *([2**31 - 1, -2**31] * 128))
        path = self.changed("f.safetensors", main_indices=("I32", [2, 128], garbage))
        self.expect(call("run", path, "--check"), OK)

    @unittest.skipIf(os.environ.get("RAGGEDMLA_SANITIZED"), "sanitizers need memory of their own")
    def test_peak_memory(self):
        """File size + output + 64 MB, also where a tensor has to be copied to be aligned."""
        big = self.path / "big.safetensors"
        self.expect(call("make-workload", big, "--batch", 8, "--context", 65536, "--tensor-parallel", 2), OK)
        metadata, tensors = read_file(big)
        odd = self.path / "odd.safetensors"
        write_file(odd, metadata, {"a": ("U8", [1], b"x"), **tensors})
        for path in (big, odd):
            script = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);" \
                     "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
            done = subprocess.run([sys.executable, "-c", script, TOOL, "run", str(path), "--check", "--check-queries", "2",
                                   "--out", str(self.path / "big_out")], capture_output=True, text=True, check=True)
            limit = path.stat().st_size + (self.path / "big_out").stat().st_size + 64e6
            self.assertLessEqual(int(done.stdout) * 1024, limit, path.name)


class Verify(Case):
    def test_bad_places(self):
        self.expect(call("verify", self.path / "absent"), BAD_INPUT, "expected a folder or a safetensors file")
        with tempfile.TemporaryDirectory() as empty:
            self.expect(call("verify", empty), BAD_INPUT, "holds no *.safetensors file")
        nothing = self.path / "nothing.safetensors"
        write_file(nothing, {}, {})
        self.expect_skip(nothing)

    def expect_skip(self, path):
        done = call("verify", path)
        self.assertEqual(done.returncode, BAD_INPUT)
        self.assertIn("holds nothing that can be verified", done.stderr)
        self.assertIn("skipped", done.stdout)

    def test_workload_without_results(self):
        self.expect(call("verify", self.workload), BAD_INPUT, "has no tensor 'out'")

    def check_golden(self, folder, checks):
        if not folder.is_dir():
            self.skipTest(f"no {folder}")
        # The fp64 definition takes minutes over the layers under sanitizers.
        for device in ("cpu",) if os.environ.get("RAGGEDMLA_SANITIZED") else ("cpu", "reference"):
            report = json.loads(self.expect(call("verify", folder, "--device", device, "--json"), OK).stdout)
            self.assertTrue(report["passed"])
            self.assertEqual(len(report["checks"]), checks)

    def test_golden_calls(self):
        self.check_golden(golden("RAGGEDMLA_GOLDEN", "golden"), 20)

    def test_golden_layers(self):
        self.check_golden(golden("RAGGEDMLA_GOLDEN_LAYER", "golden-layer"), 6)


class Bench(Case):
    def test_cpu(self):
        report = json.loads(self.expect(call("bench", "--suite", "decode", "--seconds", "0.01", "--json"), OK).stdout)
        self.assertEqual({row["suite"] for row in report["results"]}, {"decode"})
        self.assertTrue(all(row["seconds"] > 0 for row in report["results"]))


if __name__ == "__main__":
    unittest.main()
