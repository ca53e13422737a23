"""`distserve dev demo`: from nothing to a streamed answer, on a cluster that keeps running."""

import time
from pathlib import Path

import click

from distserve_cli.demo.cluster_commands import ClusterCommands
from distserve_cli.demo.conversation import converse
from distserve_cli.demo.narration import say, step
from distserve_cli.demo.readiness import wait_until_ready
from distserve_devcluster.cluster import DEFAULT_NAME, Cluster, ClusterSpec
from distserve_devcluster.locations import StateFolder, default_state_folder
from distserve_devcluster.running import down, publish, status, up
from distserve_devcluster.weights import fetch_weights

SOURCE = Path(__file__).parents[3]
CHART = SOURCE / "helm/distserve"
SAMPLE = SOURCE / "docs/samples/smollm2.yaml"
DEPLOYMENT = "smollm2"
MODEL = "smollm2-135m-instruct"
SYSTEM_NAMESPACE = "distserve-system"
QUESTION = "What is the capital of France?"
READY_SECONDS = 300


@click.command()
@click.option("--name", default=DEFAULT_NAME, show_default=True, help="Which local cluster.")
@click.option(
    "--port",
    default=0,
    show_default="a free one, kept",
    type=click.IntRange(0, 65535),
    help="Where the endpoint listens on 127.0.0.1.",
)
def demo(name: str, port: int) -> None:
    """Start a local cluster, install the chart, deploy SmolLM2, send one streamed request; leaves all running."""
    start = time.monotonic()
    state = StateFolder(default_state_folder(name))
    ours = status(state) is None
    try:
        cluster, port = _run(name, state, port)
    except BaseException:  # Ctrl-C too: nothing is left half-running
        if ours and down(state):
            click.echo(f"  the local cluster was stopped again; its logs stay in {state.path}", err=True)
        raise
    _print_what_next(cluster, port)
    click.secho(f"▸ the demo took {time.monotonic() - start:.0f} s", bold=True)


def _run(name: str, state: StateFolder, port: int) -> tuple[Cluster, int]:
    with step("start the local Kubernetes (etcd, API server, scheduler, controllers, kubelet)"):
        cluster = up(ClusterSpec(name=name), say)
        say(f"logs: {cluster.logs}")
    commands = ClusterCommands(cluster.kubectl, cluster.helm, cluster.kubeconfig, cluster.logs)
    with step("fetch SmolLM2-135M-Instruct"):
        fetch_weights(say)
    with step("install the chart: custom resources, operator, RBAC"):
        _install(commands)
    with step(f"deploy {SAMPLE.relative_to(SOURCE)} and wait until it is Ready"):
        commands.kubectl("apply", "-f", str(SAMPLE))
        wait_until_ready(commands, DEPLOYMENT, READY_SECONDS)
        click.echo(commands.kubectl("get", "dsd,pods"))
    with step("send one streamed chat completion"):
        port = _endpoint(cluster, state, port)
        converse(port, MODEL, QUESTION, f"{cluster.logs}; kubectl logs -l distserve.io/deployment={DEPLOYMENT}")
    return cluster, port


def _install(commands: ClusterCommands) -> None:
    commands.helm(
        "upgrade",
        "--install",
        "distserve",
        str(CHART),
        "--namespace",
        SYSTEM_NAMESPACE,
        "--create-namespace",
        "--wait",
        "--timeout",
        "120s",
    )


def _endpoint(cluster: Cluster, state: StateFolder, port: int) -> int:
    """Port of 127.0.0.1 behind which the gateway's Service is; the one of an earlier run when none is asked for."""
    service = f"default/{DEPLOYMENT}"
    known = next((each.port for each in cluster.published if each.service == service), 0)
    return known if known and port in {0, known} else publish(state, service, port)


def _print_what_next(cluster: Cluster, port: int) -> None:
    click.secho("▸ it keeps running. Try:", bold=True)
    click.echo(
        f"""
  curl -N http://127.0.0.1:{port}/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{{"model": "{MODEL}", "messages": [{{"role": "user", "content": "Hello"}}], "stream": true}}'

  from openai import OpenAI
  client = OpenAI(base_url="http://127.0.0.1:{port}/v1", api_key="none")
  client.chat.completions.create(model="{MODEL}", messages=[{{"role": "user", "content": "Hello"}}])

  export KUBECONFIG={cluster.kubeconfig}
  alias kubectl={cluster.kubectl}
  kubectl get dsd,pods
  kubectl describe dsd {DEPLOYMENT}
  kubectl logs -l distserve.io/role=decode
  kubectl logs -n {SYSTEM_NAMESPACE} -l app.kubernetes.io/name=distserve

  make down    # ends everything that this started
"""
    )
