"""Doing: each action, in its one place."""

from collections.abc import Mapping
from typing import Any, assert_never

from stepwarden.wire import Instruction
from stepwarden_operator.actions import Action, Announce, Create, DeleteJob, Instruct, PatchJob, WriteStatus
from stepwarden_operator.api import Api, ApiError
from stepwarden_operator.events import event_body, event_name
from stepwarden_operator.hub import Hub
from stepwarden_operator.manifests.job import job
from stepwarden_operator.manifests.secret import secret, token
from stepwarden_operator.manifests.service import service
from stepwarden_operator.metrics import STATUS_WRITES
from stepwarden_operator.observe import Refusal
from stepwarden_operator.settings import Settings
from stepwarden_operator.training_job import TrainingJob
from stepwarden_operator.view import Entry, owner, put

CONFLICT, FORBIDDEN, INVALID, NOT_FOUND = 409, 403, 422, 404


class Refused(Exception):  # noqa: N818 - not an error: the cluster's answer
    """The API server refused a child: the entry knows why, decide anew."""


class Applier:
    """Carries out actions, and keeps in the entry what the API answered."""

    def __init__(self, api: Api, hub: Hub, settings: Settings) -> None:
        """Use these clients."""
        self.api, self.hub, self.settings = api, hub, settings

    async def apply(self, action: Action, asked: TrainingJob, entry: Entry) -> None:
        """Carry out one action. Raises `ApiError`, `HubError` and `Refused`."""
        match action:
            case Create():
                await self.create(asked, entry, action)
            case DeleteJob(uid):
                await self.delete_job(uid, asked, entry)
            case PatchJob(spec):
                found = await self.api.merge("Job", asked.namespace, asked.name, {"spec": spec})
                put(entry.jobs, "MODIFIED", found)
            case WriteStatus(patch):
                STATUS_WRITES.inc()
                entry.take(
                    await self.api.merge(
                        "TrainingJob", asked.namespace, asked.name, {"status": patch}, "/status"
                    ),
                )
            case Instruct(instruction):
                await self.instruct(instruction, asked, entry)
            case Announce():
                await self.announce(action, asked, entry)
            case _:
                assert_never(action)

    async def create(self, asked: TrainingJob, entry: Entry, wanted: Create) -> None:
        """Make the children. What the API server refuses becomes the entry's refusal."""
        try:
            await self.ensure(secret(asked, self.settings.key))
            await self.ensure(service(asked))
            await self.create_job(asked, entry, wanted)
        except ApiError as error:
            refusal = refused(error, asked.generation)
            if refusal is None:
                raise
            if refusal != entry.refusal:
                entry.refusal = refusal
                raise Refused from error
        else:
            entry.refusal = None

    async def ensure(self, body: Mapping[str, Any]) -> None:
        """
        Make a child, or bring one of an operator before us in line. Raises `ApiError` where it's not ours.

        Server-side apply alone would do both, but it costs the API server twice as much as to create.
        """
        try:
            await self.api.create(body)
        except ApiError as error:
            if error.status != CONFLICT:
                raise
            await self.api.apply(body)

    async def create_job(self, asked: TrainingJob, entry: Entry, wanted: Create) -> None:
        """Make the Job, or take the one that an operator before us has made."""
        try:
            made = job(asked, self.settings, suspend=wanted.suspend, restarts=wanted.restarts)
            body = await self.api.create(made)
        except ApiError as error:
            if error.status != CONFLICT:
                raise
            body = await self.api.get("Job", asked.namespace, asked.name)
            if owner(body) != asked.uid:
                raise
        put(entry.jobs, "ADDED", body)

    async def delete_job(self, uid: str, asked: TrainingJob, entry: Entry) -> None:
        """Delete the Job; one that is gone already, or whose name another has by now, is as well."""
        try:
            await self.api.delete("Job", asked.namespace, asked.name, uid)
        except ApiError as error:
            if error.status not in (CONFLICT, NOT_FOUND):
                raise
        entry.jobs.pop(uid, None)
        entry.changed.set()

    async def instruct(self, instruction: Instruction, asked: TrainingJob, entry: Entry) -> None:
        """Tell the hub; its answer is its newest report."""
        pod = next((pod for pod in entry.read_pods(asked, entry.child) if pod.uid == entry.report_pod), None)
        if pod is None:
            return
        entry.report = await self.hub.instruct(pod.ip, token(asked, self.settings.key), instruction)

    async def announce(self, event: Announce, asked: TrainingJob, entry: Entry) -> None:
        """Make an Event, unless it was made: by us, or by the operator before us."""
        name = event_name(asked, event)
        try:
            await self.api.create(event_body(asked, event))
        except ApiError as error:
            if error.status not in (CONFLICT, FORBIDDEN, NOT_FOUND):  # its namespace is going
                raise
        entry.announced.add(name)


def refused(error: ApiError, generation: int) -> Refusal | None:
    """Put the API server's no as a refusal; None where it may be a yes if asked again at once."""
    message = str(error)
    if error.status == INVALID and "ownerReferences" not in message:
        return Refusal(generation=generation, reason="InvalidTemplate", message=message)
    if error.status in (CONFLICT, INVALID):
        return Refusal(generation=generation, reason="NameTaken", message=message, permanent=False)
    if error.status == FORBIDDEN:
        return Refusal(generation=generation, reason="Forbidden", message=message, permanent=False)
    return None
