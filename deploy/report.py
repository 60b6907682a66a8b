#!/usr/bin/python3
"""What quickstart's jobs were, in words and tables, from zerorun's JSON.

    report.py steps CALM.json SECONDS         how many steps take so long here
    report.py tables CALM.json RUN.json TEXT SAMPLE

Exit status 1: something is not as it should be (said in words).
"""
import collections
import json
import math
import sys

STATES = (("params", 4), ("grads", 4), ("optimizer", 12))  # bytes an element, all fp32
KINDS = ("all_gather", "reduce_scatter", "all_reduce")


def title(text):
    print(f"\n== {text}\n")


def entropy(path):
    """Of single bytes, in nats: what a model scores that only knows how frequent each byte is."""
    with open(path, "rb") as f:
        counts = collections.Counter(f.read())
    total = sum(counts.values())
    return -sum(n / total * math.log(n / total) for n in counts.values())


def tail_mean(values, count):
    last = values[-count:]
    return sum(last) / len(last)


def nothing_lost(calm, run):
    title("Nothing was lost")
    n = calm["steps"]
    same = calm["losses"] == run["losses"][:n] and calm["grad_norms"] == run["grad_norms"][:n]
    recovery = run["recoveries"][0] if run["recoveries"] else {}
    ms = recovery.get("kill_to_first_gather_ms")
    print(f"trainers started again   {run['restarts']}")
    print(f"steps                    {run['steps']}, each determined once; {run['attempts']} tries were opened, "
          "loading's and one behind the last step among them")
    if ms is not None:
        print(f"from kill to next gather {ms:.0f} ms (rank {recovery['rank']}, step {recovery['step']})")
    print(f"the first {n} losses and gradient norms, beside the run without a mishap: "
          f"{'equal to the last bit' if same else 'THEY DIFFER'}")
    return same and run["restarts"] == 1


def loss(run, text):
    title("Loss, nats per byte")
    bound, last = entropy(text), tail_mean(run["losses"], 20)
    print(f"all bytes equally likely {math.log(256):8.4f}")
    print(f"first step               {run['losses'][0]:8.4f}")
    print(f"the text's byte entropy  {bound:8.4f}   what counting bytes can reach")
    print(f"mean of the last steps   {last:8.4f}   {'below: it has learned what follows what' if last < bound else 'NOT BELOW'}")
    return last < bound


def row(name, *cells, remark=""):
    print(f"{name:15}" + "".join(f"{c:>13}" for c in cells) + (f"   {remark}" if remark else ""))


def memory(run):
    ranks, first = run["ranks"], run["ranks"][0]
    psi = sum(r["memory_formula"]["optimizer"] for r in ranks) // 12
    title(f"Memory of a rank: {psi} parameters in fp32, {run['strategy']} on {len(ranks)} ranks; rank 0's")
    row("", "elements", "of ddp", "bytes", "formula", "of ddp")
    total = [0, 0, 0]
    for name, each in STATES:
        measured, formula, ddp = first["memory"][name], first["memory_formula"][name], psi * each
        row(name, measured // each, psi, measured, formula, ddp)
        total = [total[0] + measured, total[1] + formula, total[2] + ddp]
    row("state", "", "", *total, remark=f"1/{total[2] / total[0]:.2f} of ddp's")
    for name in ("gather_slots", "grad_slots", "padding", "rounding", "fixed"):
        row(name.replace("_", " "), "", "", first["memory"][name], first["memory_formula"][name], "")
    row("all", "", "", first["memory_total"], sum(first["memory_formula"].values()), "",
        remark=f"{first['huge_bytes']} in huge pages")
    print("\nzero3 gathers fp32 parameters from the optimizer's master weights, so params are 0. Of this small\n"
          "model the slots are a large part; they stay as they are when a model gets more layers.")
    return all(r["memory"] == r["memory_formula"] and sum(r["memory"].values()) == r["memory_total"] for r in ranks)


def traffic(run):
    title("Sent by a rank in a step; rank 0's")
    first = run["ranks"][0]
    row("", "elements", "of ddp", "bytes", "formula", "of ddp")
    sent, formula, ddp = (first[k] for k in ("sent_per_step", "sent_per_step_formula", "sent_per_step_ddp"))
    total = [0] * 5
    for kind in KINDS:
        cells = (sent[kind]["elements"], ddp[kind]["elements"], sent[kind]["bytes"], formula[kind]["bytes"],
                 ddp[kind]["bytes"])
        total = [x + y for x, y in zip(total, cells)]
        row(kind.replace("_", "-"), *cells)
    row("all", *total, remark=f"{total[2] / total[4]:.2f} times ddp's")
    return all(r["sent_per_step"] == r["sent_per_step_formula"] for r in run["ranks"])


def show_sample(path):
    title("What it writes")
    with open(path, errors="replace") as f:
        for line in f.read().strip().splitlines():
            print("  " + line)


def tables(calm_path, run_path, text, sample):
    with open(calm_path) as f:
        calm = json.load(f)
    with open(run_path) as f:
        run = json.load(f)
    good = {"losses after the kill": nothing_lost(calm, run), "loss": loss(run, text),
            "memory against the formula": memory(run), "traffic against the formula": traffic(run)}
    show_sample(sample)
    bad = [name for name, ok in good.items() if not ok]
    if bad:
        print(f"\nquickstart: not as it should be: {', '.join(bad)}", file=sys.stderr)
    return 1 if bad else 0


def steps(calm_path, seconds):
    """Of a multiple of 50, 200 to 3000."""
    with open(calm_path) as f:
        calm = json.load(f)
    rate = calm["steps"] / calm["wall_seconds"]
    print(max(200, min(3000, int(rate * float(seconds)) // 50 * 50)))
    return 0


def main(words):
    if len(words) == 3 and words[0] == "steps":
        return steps(words[1], words[2])
    if len(words) == 5 and words[0] == "tables":
        return tables(*words[1:])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
