"""A bar that follows a job from its first state to its last."""

from __future__ import annotations

from rich.progress import Progress, TaskID

from deploy.commands.showing import bars
from roost import Event, Job, JobInfo


def followed(job: Job) -> None:
    """Draw a job's progress until it has ended; without a terminal only wait."""
    with bars() as drawn:
        if drawn.disable:
            job.wait()
            return
        bar = drawn.add_task(job.info.model, total=job.info.items, state=job.status)
        for event in job.events():
            draw(drawn, bar, event)


def draw(drawn: Progress, bar: TaskID, event: Event) -> None:
    """Bring a bar to where an event says that its job is."""
    job = event.job
    if job is not None:
        done = job.items if job.status == "succeeded" else event.items_done
        drawn.update(bar, completed=done, state=state_of(job))


def state_of(job: JobInfo) -> str:
    """A job's state, and how many of its items failed."""
    return f"{job.status}, {job.items_failed} failed" if job.items_failed else job.status
