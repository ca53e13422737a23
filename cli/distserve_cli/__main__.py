"""Entry point of `distserve`, also installed as the kubectl plug-in `kubectl distserve`."""

import click

from distserve_cli.demo.command import demo
from distserve_cli.dev import dev


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="distserve")
def main() -> None:
    """DistServe on Kubernetes."""


dev.add_command(demo)
main.add_command(dev)

if __name__ == "__main__":
    main()
