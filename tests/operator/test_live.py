import asyncio

JOBS = "stepwarden.dev/v1alpha1/trainingjobs"


def training_job(**spec):
    template = {"spec": {"containers": [{"name": "trainer", "image": "x", "command": ["torchrun", "t.py"]}]}}
    return {
        "apiVersion": "stepwarden.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "tiny", "namespace": "ns", "uid": "u1", "generation": 1, "resourceVersion": "1"},
        "spec": {"numNodes": 2, "template": template, **spec},
    }


async def test_a_job_gets_its_children_and_a_status(kmock, running_operator):
    kmock.objects[JOBS, "ns", "tiny"] = training_job()
    async with asyncio.timeout(10), running_operator():
        while "status" not in kmock.objects[JOBS, "ns", "tiny"]:
            await asyncio.sleep(0.05)
    status = kmock.objects[JOBS, "ns", "tiny"]["status"]
    assert status["phase"] == "Pending"
