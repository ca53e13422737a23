"""Entry point of `distserve`, also installed as the kubectl plug-in `kubectl distserve`."""

import click

from distserve_cli.benching.commands import bench
from distserve_cli.demo.command import demo
from distserve_cli.dev import dev
from distserve_cli.planning.commands import plan_command, simulate_command
from distserve_cli.profiling.commands import profile_command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="distserve")
def main() -> None:
    """DistServe on Kubernetes."""


dev.add_command(demo)
main.add_command(dev)
main.add_command(bench)
main.add_command(plan_command)
main.add_command(simulate_command)
main.add_command(profile_command)

if __name__ == "__main__":
    main()
