"""PlacementReady: whether the wanted shape can be served at all."""

from distserve_operator.api.deployment import DistServeDeployment
from distserve_operator.conditions.condition import State, Verdict
from distserve_proto.contract import Role


def placement_verdict(deployment: DistServeDeployment) -> Verdict:
    """False when no pod may be made for this spec."""
    return _unsupported_shape(deployment) or _too_many_devices(deployment) or _placed(deployment)


def _unsupported_shape(deployment: DistServeDeployment) -> Verdict | None:
    """The engine runs an instance on one device so far."""
    shapes = {Role.PREFILL: deployment.placement.prefill, Role.DECODE: deployment.placement.decode}
    larger = [
        f"placement.{role} has tp {shape.tp} and pp {shape.pp}"
        for role, shape in shapes.items()
        if shape.devices_per_instance > 1
    ]
    if not larger:
        return None
    text = f"{' and '.join(larger)}: an instance runs on one device in this version, set tp and pp to 1"
    return Verdict(State.FALSE, "UnsupportedShape", text, permanent=True)


def _too_many_devices(deployment: DistServeDeployment) -> Verdict | None:
    wanted, most = deployment.placement.devices, deployment.cluster.max_devices
    if wanted <= most:
        return None
    text = f"the shape {deployment.placement} takes {wanted} devices but cluster.maxDevices is {most}"
    return Verdict(State.FALSE, "TooManyDevices", text, permanent=True)


def _placed(deployment: DistServeDeployment) -> Verdict:
    wanted, cluster = deployment.placement.devices, deployment.cluster
    text = f"{deployment.placement} takes {wanted} of at most {cluster.max_devices} {cluster.device_type} devices"
    return Verdict(State.TRUE, "Manual", text)
