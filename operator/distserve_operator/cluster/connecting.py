"""Finds the API server: the pod's own service account, else the kubeconfig of a developer."""

from kubernetes.aio import client, config


async def connect() -> client.ApiClient:
    """A client whose credentials renew themselves. Raises `kubernetes.aio.config.ConfigException`."""
    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException:
        await config.load_kube_config(client_configuration=configuration)
    # As kopf does: the API server is never behind the proxy that the environment may name.
    configuration.client_session_kwargs = {"trust_env": False}
    return client.ApiClient(configuration)
