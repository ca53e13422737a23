"""`distserve dev`: the local one-machine Kubernetes from the command line."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from distserve_devcluster.building import CLUSTER, build, build_programs
from distserve_devcluster.cluster import DEFAULT_GPU_PRODUCT, DEFAULT_NAME, Cluster, ClusterSpec
from distserve_devcluster.errors import DevClusterError
from distserve_devcluster.locations import StateFolder, default_state_folder
from distserve_devcluster.running import down as take_down
from distserve_devcluster.running import kill_container, publish, set_component, status, up
from distserve_devcluster.weights import fetch_weights

NAME_VARIABLE = "DISTSERVE_DEV_NAME"
name_option = click.option(
    "--name", default=DEFAULT_NAME, show_default=True, envvar=NAME_VARIABLE, help="Which local cluster."
)


class DevGroup(click.Group):
    """Turns the local cluster's errors into messages."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the subcommand."""
        try:
            return super().invoke(ctx)
        except DevClusterError as error:
            raise click.ClickException(str(error)) from error


def say(text: str) -> None:
    """One line of progress; standard output stays for results."""
    click.echo(f"  {text}", err=True)


def state_of(name: str) -> StateFolder:
    """Where the cluster `name` lives."""
    return StateFolder(default_state_folder(name))


def running(name: str) -> Cluster:
    """The running cluster `name`, or an error that says how to start it."""
    cluster = status(state_of(name))
    if cluster is None:
        raise click.ClickException(f"no local cluster {name!r} runs; start it with `distserve dev up --name {name}`")
    return cluster


@click.group(cls=DevGroup)
def dev() -> None:
    """A one-machine Kubernetes for development and tests."""


@dev.command("up")
@name_option
@click.option(
    "--gpus", default=0, show_default=True, type=click.IntRange(0, 64), help="GPUs that each node pretends to have."
)
@click.option("--gpu-product", default=DEFAULT_GPU_PRODUCT, show_default=True, help="Their product label.")
@click.option("--nodes", default=1, show_default=True, type=click.IntRange(1, 16), help="Nodes.")
def up_command(name: str, gpus: int, gpu_product: str, nodes: int) -> None:
    """Build what is missing, start the cluster, wait until it is ready. A running one is found again."""
    cluster = up(ClusterSpec(name=name, gpus=gpus, gpu_product=gpu_product, nodes=nodes), say)
    click.echo(f"export KUBECONFIG={cluster.kubeconfig}")


@dev.command("down")
@name_option
def down_command(name: str) -> None:
    """End the cluster and everything that runs in it; its logs stay."""
    say(f"cluster {name!r} ended" if take_down(state_of(name)) else f"no cluster {name!r} was running")


@dev.command("status")
@name_option
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def status_command(name: str, output: str) -> None:
    """Show the cluster's addresses, components, containers and published Services."""
    cluster = status(state_of(name))
    if output == "json":
        described = {"name": name, "running": False} if cluster is None else cluster.to_json()
        click.echo(json.dumps(described, indent=2))
    elif cluster is None:
        click.echo(f"no local cluster {name!r} runs")
    else:
        print_tables(cluster)


def print_tables(cluster: Cluster) -> None:
    """The cluster for a person's eyes."""
    console = Console()
    console.print(f"{cluster.name}: {cluster.phase}, {cluster.api_server}", highlight=False)
    console.print(f"kubeconfig {cluster.kubeconfig}\nlogs {cluster.logs}", highlight=False, soft_wrap=True)
    components = Table("COMPONENT", "PID", "RUNNING", box=None)
    for component in cluster.components:
        components.add_row(component.name, str(component.pid or "-"), "yes" if component.running else "no")
    containers = Table("POD", "CONTAINER", "PID", box=None)
    for each in cluster.containers:
        containers.add_row(f"{each.namespace}/{each.pod}", each.container, str(each.pid))
    published = Table("SERVICE", "ADDRESS", box=None)
    for service in cluster.published:
        published.add_row(service.service, f"127.0.0.1:{service.port}")
    for table in (components, containers, published):
        if table.row_count:
            console.print(table)


@dev.command("publish")
@click.argument("service", metavar="NAMESPACE/SERVICE[:PORT]")
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Port of 127.0.0.1; 0 takes a free one.")
@name_option
def publish_command(service: str, port: int, name: str) -> None:
    """Make a Service reachable at 127.0.0.1:PORT of this machine, for as long as the cluster runs."""
    click.echo(f"127.0.0.1:{publish(state_of(name), service, port)}")


@dev.command("component")
@click.argument("action", type=click.Choice(["stop", "start"]))
@click.argument("component", metavar="COMPONENT")
@name_option
def component_command(action: str, component: str, name: str) -> None:
    """Stop or start one program of the cluster, e.g. kube-apiserver or etcd."""
    set_component(state_of(name), component, action)


@dev.command("kill")
@click.argument("pod", metavar="NAMESPACE/POD")
@click.option("--container", help="Needed when the pod has several.")
@click.option("--signal", "signal_name", default="KILL", show_default=True, help="Name of the signal, without SIG.")
@name_option
def kill_command(pod: str, container: str | None, signal_name: str, name: str) -> None:
    """Send a signal to the first process of a container, as a failing machine would."""
    namespace, _, pod_name = pod.partition("/")
    number = getattr(signal, f"SIG{signal_name.upper()}", None)
    if not pod_name or not isinstance(number, signal.Signals):
        raise click.UsageError(f"want NAMESPACE/POD and a signal name, not {pod!r} and {signal_name!r}")
    kill_container(state_of(name), namespace, pod_name, container, number)


@dev.command("build")
def build_command() -> None:
    """Build what a local cluster needs into the cache, unless it is there."""
    build_programs(say)


@dev.command("weights")
def weights_command() -> None:
    """Fetch the default model's weights into the folder behind the claim `models`."""
    click.echo(fetch_weights(say))


@dev.command("check-crds")
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True))
def check_crds_command(paths: tuple[str, ...]) -> None:
    """Check CustomResourceDefinitions and resources with the API server's own validation; needs no cluster."""
    program = build(CLUSTER, say) / "devcluster"
    os.execv(program, [program.name, "crd-check", *paths])  # noqa: S606


class PassThrough(click.Command):
    """Becomes another program with the cluster's kubeconfig; every argument is that program's, `--` included."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the arguments as they are: click would swallow a `--`."""
        ctx.params["arguments"] = tuple(args)
        return []


def pass_through(program: str, locate: Callable[[Cluster], Path]) -> None:
    """Add the command `program`; the cluster's name comes from DISTSERVE_DEV_NAME, since no option is ours."""

    @dev.command(
        program, cls=PassThrough, help=f"Run {program} against the cluster (DISTSERVE_DEV_NAME chooses which)."
    )
    def command(arguments: tuple[str, ...]) -> None:
        cluster = running(os.environ.get(NAME_VARIABLE, DEFAULT_NAME))
        environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
        os.execve(locate(cluster), [program, *arguments], environment)  # noqa: S606


pass_through("kubectl", lambda cluster: cluster.kubectl)
pass_through("helm", lambda cluster: cluster.helm)
