"""Snakemake that looks after its jobs as often as ``--seconds-between-status-checks`` says.

The executor for Slurm looks the more seldom the longer nothing ends, up to every three minutes; no option changes that.
"""

from snakemake.cli import main
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

RemoteExecutor.next_seconds_between_status_checks = property(
    lambda self: self.workflow.remote_execution_settings.seconds_between_status_checks, lambda self, _: None
)

if __name__ == "__main__":
    main()
