"""Run the operator: `python -m stepwarden_operator`."""

import asyncio
import logging

import kopf

from stepwarden_operator import handlers


def main() -> None:
    """Run until told to end. One per cluster: the chart's Deployment sees to that, so there is no peering."""
    kopf.configure(log_format=kopf.LogFormat.FULL)
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)  # it tells of each event heard
    assert handlers.start  # noqa: S101 - importing them registers them
    asyncio.run(kopf.operator(clusterwide=True, standalone=True))


if __name__ == "__main__":
    main()
