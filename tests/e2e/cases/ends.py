"""The end of a job: ranks finish together, one later than the others, or one before them."""
from harness import case, check, equal


@case("ends/rank_0_samples_while_others_have_finished")
def samples(bench):
    report = bench.run(3, "zero3", bench.gpt(steps=5, sample=3000))
    equal(report["attempts"], 7, "tries: the loading, 5 steps, and the one that the last step opened")


@case("ends/one_rank_goes_on")
def goes_on(bench):
    """Rank 2 wants one step more: an error that names it and who has finished, within a second."""
    words = " ".join(bench.gpt())
    trainer = ["/bin/sh", "-c", f"exec {words} --steps $((5 + RANK / 2))"]
    text = bench.fail(3, "zero2", trainer, limit=5, max_restarts=0)
    check("FAILED_PRECONDITION" in text and "rank 2: goes on with step 6" in text, text)
    check("trainer has finished" in text, text)
