#!/usr/bin/python3
"""gpt-standalone as a user sees it: same bits from run to run and from every instruction set, JSON, messages and
exit statuses, and nothing of zerod's wire linked into it.

    test_program.py build/bin/gpt-standalone build/bin/gpt_on_fake_zerod
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

if len(sys.argv) < 3:
    sys.exit(__doc__)
PROGRAM, FAKE = sys.argv.pop(1), sys.argv.pop(1)
SMALL = ["--layers", "2", "--heads", "2", "--channels", "32", "--seq", "16", "--batch", "2", "--steps", "6"]


def read(path):
    with open(path, "rb") as f:
        return f.read()


class Program(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.data = cls.path("text")
        with open(cls.data, "w") as f:
            subprocess.run("bible -f gen1:1-gen20:18 | sed 's/^[^ ]* //'", shell=True, check=True, stdout=f)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder.name, name)

    def run_gpt(self, *words, status=0, program=PROGRAM, **environment):
        done = subprocess.run([program, *words], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment})
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def train(self, *words, **environment):
        report = self.path("report.json")
        self.run_gpt("--data", self.data, *SMALL, "--json", report, "--quiet", *words, **environment)
        with open(report) as f:
            return json.load(f)

    def test_same_bits_every_run(self):
        first = self.train()
        self.assertRegex(first["param_hash"], "^[0-9a-f]{16}$")
        self.assertEqual(len(first["losses"]), 6)
        self.assertEqual(first["losses"], self.train()["losses"])
        self.assertEqual(first["param_hash"], self.train()["param_hash"])
        self.assertNotEqual(first["param_hash"], self.train("--seed", "2")["param_hash"])
        self.assertNotEqual(first["param_hash"], self.train("--micro-batches", "2")["param_hash"])

    def test_same_bits_from_every_instruction_set(self):
        flags = read("/proc/cpuinfo").decode().split()
        for dtype in "fp32", "bf16":
            want = self.train("--dtype", dtype)["param_hash"]
            for isa, flag in (("plain", ""), ("avx2", "avx2"), ("avx512", "avx512bw")):
                if flag and flag not in flags:
                    print(f"skipped: this CPU lacks {isa}")
                    continue
                self.assertEqual(self.train("--dtype", dtype, ZEROD_ISA=isa)["param_hash"], want, (dtype, isa))

    def test_learns(self):
        report = self.train("--steps", "80", "--lr", "0.003", "--warmup", "5")
        self.assertEqual(report["steps"], 80)
        self.assertLess(sum(report["losses"][-5:]) / 5, 3.2)
        self.assertGreater(report["losses"][0], 5)
        self.assertGreater(report["tokens_per_second"], 0)

    def test_dump_is_where_init_starts(self):
        first, second = self.path("first.safetensors"), self.path("second.safetensors")
        self.train("--dump", first)
        self.train("--init", first, "--steps", "0", "--dump", second)
        self.assertEqual(read(first), read(second))

    def test_sample_is_the_seeds(self):
        words = ["--data", self.data, *SMALL, "--quiet", "--sample", "50", "--prompt", "In the "]
        text = self.run_gpt(*words).stdout
        self.assertTrue(text.startswith("In the "))
        self.assertEqual(text, self.run_gpt(*words).stdout)
        self.assertNotEqual(text, self.run_gpt(*words, "--seed", "3").stdout)

    def test_libzerod_is_used_as_declared(self):
        """fake_zerod.c compares every call with the registered plans, and passes it to the stand-alone store."""
        words = ["--data", self.data, *SMALL, "--quiet", "--micro-batches", "2", "--seed", "9"]
        want, got, report = self.path("want.safetensors"), self.path("got.safetensors"), self.path("fake.json")
        for extra in [], ["--tied", "--checkpoint-activations"], ["--init-by-daemon", "--optimizer", "lion"]:
            self.check_fake(words + extra, want, got, report)
        self.assertEqual(self.run_gpt(*words, program=FAKE).stdout, "")
        narrow = self.run_gpt(*words, "--tied", "--json", report, program=FAKE, GPT_FAKE_WIRE="bf16")
        self.assertEqual(narrow.stderr, "")
        losses = self.train(*words, "--tied")["losses"]
        self.assertLess(max(abs(a - b) / b for a, b in zip(json.loads(read(report))["losses"], losses)), 1e-3)
        self.assertNotEqual(json.loads(read(report))["losses"], losses)

    def check_fake(self, words, want, got, report):
        for dtype in "fp32", "bf16", "fp16":
            alone = self.train(*words, "--dtype", dtype, "--dump", want)
            for void in "", "0", "1", "37", "40":
                done = self.run_gpt(*words, "--dtype", dtype, "--dump", got, "--json", report, program=FAKE,
                                    GPT_FAKE_VOID=void or "-1")
                self.assertEqual(read(got), read(want), (dtype, void))
                result = json.loads(read(report))
                self.assertEqual(result["losses"], alone["losses"])
                self.assertIsNone(result["param_hash"])
                self.assertEqual(done.stderr.count("is void, redoing it: fake void"), 1 if void else 0)

    def test_recomputation_changes_no_bit(self):
        for words in [], ["--tied", "--micro-batches", "2"], ["--dtype", "bf16"]:
            kept, again = self.train(*words), self.train(*words, "--checkpoint-activations")
            self.assertEqual(kept["param_hash"], again["param_hash"], words)
            self.assertEqual(kept["losses"], again["losses"], words)
            self.assertLess(again["activation_bytes"], kept["activation_bytes"], words)

    def test_tied_weights_are_one_tensor(self):
        apart, tied = self.train(), self.train("--tied", "--dump", self.path("tied.safetensors"))
        self.assertEqual(apart["parameters"] - tied["parameters"], 256 * 32)
        self.assertNotIn(b"head.weight", read(self.path("tied.safetensors")))
        self.assertEqual(self.train("--tied", "--init", self.path("tied.safetensors"), "--steps", "0")["param_hash"],
                         tied["param_hash"])

    def test_optimizers_and_initial_values(self):
        hashes = [self.train(*words)["param_hash"] for words in (
            [], ["--optimizer", "adam"], ["--optimizer", "lion"], ["--optimizer", "sgd"],
            ["--optimizer", "sgd", "--momentum", "0.9"], ["--optimizer", "sgd", "--momentum", "0.9", "--nesterov"],
            ["--clip-value", "0.001"], ["--init-by-daemon"], ["--init-by-daemon", "--seed", "4"], ["--tied"])]
        self.assertEqual(len(set(hashes)), len(hashes), hashes)

    def test_half_precision_follows_fp32(self):
        """Losses of 200 steps, each within 2 %; fp16 scales the loss, and the scale moves."""
        words = ["--steps", "200", "--lr", "0.003", "--warmup", "10"]
        want = self.train(*words)["losses"]
        self.assertLess(want[-1], 0.6 * want[0])
        for dtype in (["bf16"], ["fp16"], ["fp16", "--scale-window", "50"]):
            got = self.train(*words, "--dtype", *dtype)
            worst = max(abs(a - b) / b for a, b in zip(got["losses"], want))
            self.assertLessEqual(worst, 0.02, dtype)
            self.assertGreater(worst, 0, dtype)  # it is another precision
            print(f"{' '.join(dtype)}: losses within {worst:.2%}, loss scale {got['loss_scale']:.0f}")
        self.assertEqual(got["loss_scale"], 65536 * 2 ** 3)  # the window ended three times before step 200

    def test_the_loss_scale_finds_its_way(self):
        """It begins far too high: steps are skipped, first borne, then each halves it, until gradients are finite."""
        got = self.train("--dtype", "fp16", "--loss-scale", "3e38", "--steps", "40", "--seq", "1", "--batch", "1")
        self.assertGreater(got["skipped"], 2)
        self.assertLess(got["skipped"], 40)
        self.assertEqual(got["loss_scale"], 3e38 / 2 ** (got["skipped"] - 1))  # the first was borne
        self.assertIsNone(got["grad_norms"][0])
        self.assertTrue(all(x is not None for x in got["grad_norms"][got["skipped"]:]))

    def test_failures_say_why(self):
        broken = self.path("broken.safetensors")
        with open(broken, "wb") as f:
            f.write(b"\xff" * 100)
        short = self.path("short")
        with open(short, "w") as f:
            f.write("In the beginning")
        other = self.path("other.safetensors")
        self.train("--dump", other, "--channels", "64")
        for words, text in (
                (["--data", "/nowhere/text"], "NOT_FOUND: opening /nowhere/text: No such file"),
                (["--data", "/"], "no regular file"),
                (["--data", short], "has 16 bytes: one sequence and its target need 17"),
                (["--data", self.data, "--init", broken], "a header of 18446744073709551615 bytes"),
                (["--data", self.data, "--init", other], "embed.wte is [256, 64], the model's is [256, 32]"),
                (["--data", self.data, "--init", "/nowhere/x"], "NOT_FOUND"),
                (["--data", self.data, "--dump", "/nowhere/x", "--steps", "0"], "/nowhere/x"),
                (["--data", self.data, "--json", "/nowhere/x", "--steps", "0"], "/nowhere/x")):
            done = self.run_gpt(*SMALL, *words, status=1)
            self.assertIn(text, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_usage_errors(self):
        for words, text in (([], "--data FILE is needed"), (["--data"], "data"), (["--layers", "0"], "layers"),
                            (["--layers", "2000"], "1024"), (["--lr", "nan"], "lr"), (["--lr", "-1"], "lr"),
                            (["--beta2", "1"], "beta2"), (["--dtype", "fp8"], "fp32"), (["--colour"], "colour"),
                            (["--data", self.data, "word"], "'word'"), (["--optimizer", "adagrad"], "lion"),
                            (["--data", self.data, "--momentum", "0.9"], "sgd's, not adamw's"),
                            (["--data", self.data, "--nesterov", "--optimizer", "sgd"], "momentum"),
                            (["--data", self.data, "--loss-scale", "8"], "--dtype fp16"),
                            (["--data", self.data, "--init-by-daemon", "--init", "x"], "one of them"), (["--steps", "x"], "steps"),
                            (["--data", self.data, "--heads", "3"], "no multiple of --heads 3")):
            self.assertIn(text, self.run_gpt(*words, status=2).stderr)
        text = self.run_gpt("--help").stdout
        for flag in "--layers --micro-batches --weight-decay --init --dump --sample --standalone".split():
            self.assertIn(flag, text)

    def test_links_nothing_of_the_wire(self):
        libraries = subprocess.run(["ldd", PROGRAM], check=True, capture_output=True, text=True).stdout
        symbols = subprocess.run(["nm", "-a", PROGRAM], check=True, capture_output=True, text=True).stdout
        for word in "nghttp2", "protobuf", "libuv", "zerod.so", "cjson":
            self.assertNotIn(word, libraries)
        for word in ("zerod_attach", "zerod_gather", "nghttp2_", "protobuf_c_", "zerod__v1", "uv_run", " engine_", " comm_",
                     " job_", " arena_"):
            self.assertNotIn(word, symbols)
        for word in "kernels_select", "layout_init", "step_scalars":
            self.assertIn(word, symbols)


if __name__ == "__main__":
    unittest.main()
