"""The Deployment of the gateway."""

from typing import Any, Final

from distserve_operator import names
from distserve_operator.api.deployment import DistServeDeployment
from distserve_operator.api.settings import ImageSource
from distserve_operator.manifests.metadata import object_metadata, role_labels, selector_labels
from distserve_operator.manifests.model_files import ModelFiles, literal, model_files, source_inputs
from distserve_operator.manifests.probes import probes
from distserve_operator.manifests.security import container_security, pod_security
from distserve_operator.observed.images import image_annotation
from distserve_proto.contract import GATEWAY_HTTP_PORT, Role

_DRAIN_SECONDS: Final = 60
# After the drain: closing connections and the interpreter's own end.
_EXIT_SECONDS: Final = 15


def gateway_inputs(deployment: DistServeDeployment, source: ImageSource) -> dict[str, Any]:
    """What was asked for; a change of anything else renews no gateway pod."""
    return {
        "image": source.image,
        "pullPolicy": source.pull_policy,
        "pullSecrets": list(source.pull_secrets) or None,
        "uri": deployment.model.uri,
        "servedName": deployment.model.served_name,
        "replicas": deployment.gateway.replicas,
        "isolatePrefixes": deployment.security.isolate_prefixes or None,
        **source_inputs(deployment.model.source),
    }


def build_gateway_deployment(deployment: DistServeDeployment, source: ImageSource) -> dict[str, Any]:
    """A new pod is ready before an old one goes."""
    labels = role_labels(deployment, Role.GATEWAY)
    metadata = object_metadata(deployment, names.gateway(deployment.name), labels)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata | {"annotations": image_annotation(source)},
        "spec": {
            "replicas": deployment.gateway.replicas,
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": selector_labels(deployment, Role.GATEWAY)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": labels}, "spec": _pod_spec(deployment, source)},
        },
    }


def _pod_spec(deployment: DistServeDeployment, source: ImageSource) -> dict[str, Any]:
    files = model_files(deployment.model.source)
    secrets = [{"name": name} for name in source.pull_secrets]
    return {
        "serviceAccountName": names.gateway(deployment.name),
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _DRAIN_SECONDS + _EXIT_SECONDS,
        "securityContext": pod_security(writes_claim=files.writes_claim),
        **({"imagePullSecrets": secrets} if secrets else {}),
        "containers": [_container(deployment, source, files)],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *files.volumes],
    }


def _container(deployment: DistServeDeployment, source: ImageSource, files: ModelFiles) -> dict[str, Any]:
    return {
        "name": "gateway",
        "image": source.image,
        "imagePullPolicy": source.pull_policy,
        "args": _arguments(deployment, files.argument),
        "env": [{"name": "HOME", "value": "/tmp"}, *files.environment],  # noqa: S108 - the only writable path
        "ports": [{"name": "http", "containerPort": GATEWAY_HTTP_PORT, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        **probes("http"),
        "securityContext": container_security(),
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *files.mounts],  # noqa: S108 - a path in the container
    }


def _arguments(deployment: DistServeDeployment, model: str) -> list[str]:
    return [
        f"--model={literal(model)}",
        f"--served-name={deployment.model.served_name}",
        f"--namespace={deployment.namespace}",
        f"--deployment={names.label_value(deployment.name)}",
        f"--drain-seconds={_DRAIN_SECONDS}",
        *(["--isolate-prefixes"] if deployment.security.isolate_prefixes else []),
    ]
