"""A job that a fault ends begins anew from its own checkpoint, as often as it may, and no more."""

from support.kube import until
from support.trainers import script_job, shell_job, with_folder

CRASHES = [{"kinds": ["RankFailed"], "action": "Restart", "times": 2}]

# Counts its steps; ends as by SIGKILL at step 12 of its first run, and goes on from where it saved.
RESUMES = """
import os, time, torch
from pathlib import Path
folder = Path("/checkpoints")
parameter = torch.nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([parameter], 1.0)
begin, found = 0, os.environ.get("STEPWARDEN_RESUME_FROM")
if found:
    saved = torch.load(found, weights_only=True)
    begin = saved["step"] + 1
    parameter.data.copy_(saved["parameter"])
print(f"begins at {begin} from {found!r}", flush=True)
for step in range(begin, int(os.environ.get("STEPS", 20))):
    optimizer.zero_grad()
    (-parameter).sum().backward()
    optimizer.step()
    torch.save({"step": step, "parameter": parameter.data}, folder / "new")
    os.replace(folder / "new", folder / f"step-{step:03d}.pt")
    if step == 12 and not found and "STEPS" not in os.environ:
        os._exit(137)  # as a signal ends it: the first process of a container has none of its own
    time.sleep(0.2)
print(f"ends with {parameter.item():.0f}", flush=True)
"""


def test_a_rank_that_is_killed_goes_on_from_its_checkpoint(kube, folder):
    job, script = script_job(
        "again",
        RESUMES,
        onFinding=CRASHES,
        restartBackoff="1s",
        restartPolicy="ExitCode",
        checkpoint={"directory": "/checkpoints"},
    )
    kube.apply(with_folder(job, folder), script)
    uid = until("the first Job", lambda: kube.get("job", "again"))["metadata"]["uid"]
    kube.until_state("again", "Complete")
    status = kube.get("tj", "again")["status"]
    assert (status["restarts"], status["run"]) == (1, 1)
    assert status["restartsBy"] == [{"rule": 0, "reason": "RankFailed", "count": 1}]
    assert status["findings"][0]["kind"] == "RankFailed"
    assert kube.get("job", "again")["metadata"]["uid"] != uid
    said = kube("logs", kube.pod_of("again"), "-c", "trainer")
    assert "begins at 13 from '/checkpoints/step-012.pt'" in said
    assert "ends with 20" in said
    told = [reason for reason, count in kube.events("again") if count == 1]
    assert [told.count(reason) for reason in ("Created", "Restarted", "Completed")] == [1, 1, 1]


def test_a_job_that_was_suspended_goes_on_from_its_checkpoint(kube, folder):
    checkpoint = {"directory": "/checkpoints"}
    job, script = script_job("pause", RESUMES, env={"STEPS": 100}, checkpoint=checkpoint)
    kube.apply(with_folder(job, folder), script)
    kube.until_step("pause", 5)
    kube("patch", "tj", "pause", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    kube.until_state("pause", "Suspended")
    until("the pods are gone", lambda: not kube.pods("pause"))
    saved = max(path.name for path in folder.glob("step-*.pt"))
    kube("patch", "tj", "pause", "--type=merge", "-p", '{"spec": {"suspend": false}}')
    kube.until_state("pause", "Complete")
    said = kube("logs", kube.pod_of("pause"), "-c", "trainer")
    assert f"from '/checkpoints/{saved}'" in said
    assert "ends with 100" in said


def test_a_job_that_fails_again_and_again_is_restarted_so_often(kube):
    kube.apply(shell_job("fails", "sleep 0.5; exit 7", onFinding=CRASHES, restartBackoff="1s"))
    kube.until_state("fails", "Failed")
    status = kube.get("tj", "fails")["status"]
    assert (status["restarts"], status["findingsCount"]) == (2, 3)
    failed = kube.condition("fails", "Failed")
    assert failed["reason"] == "RankFailed"
    assert "not restarted: restarted 2 of 2 times by this rule (times)" in failed["message"]
    assert len(kube.pods("fails")) == 1


def test_an_exit_code_that_is_permanent_is_not_tried_again(kube):
    kube.apply(shell_job("bug", "exit 7", onFinding=CRASHES, restartPolicy="ExitCode"))
    kube.until_state("bug", "Failed")
    assert kube.get("tj", "bug")["status"]["restarts"] == 0
    assert "exit code 7 is permanent" in kube.condition("bug", "Failed")["message"]
