// Package cell is the first process of the cluster's own namespaces: it prepares them, keeps the components running and
// takes everything with it when it ends.
package cell

import (
	"fmt"
	"strconv"

	"distserve.io/devcluster/layout"
)

// Component is one program of the cluster.
type Component struct {
	Name string
	Args []string
	// NeedsAPI holds the first start back until the API server is ready: the program would only fail and back off.
	NeedsAPI bool
}

// Components lists the programs of a cluster in the order in which they start.
func Components(spec layout.Spec) []Component {
	state := spec.State()
	components := []Component{
		{Name: "etcd", Args: etcd(state)},
		{Name: "kube-apiserver", Args: apiServer(state)},
		{Name: "service-proxy", Args: []string{"service-proxy", "--state", state.Dir}},
		{Name: "kube-controller-manager", Args: controllerManager(state), NeedsAPI: true},
		{Name: "kube-scheduler", Args: scheduler(state), NeedsAPI: true},
	}
	for index := range spec.Nodes {
		components = append(components, Component{
			Name: state.Node(index).Component(), NeedsAPI: true,
			Args: []string{"node", "--state", state.Dir, "--index", strconv.Itoa(index)},
		})
	}
	return components
}

func etcd(state layout.State) []string {
	client := fmt.Sprintf("http://127.0.0.1:%d", layout.EtcdPort)
	peer := fmt.Sprintf("http://127.0.0.1:%d", layout.EtcdPeerPort)
	return []string{
		"etcd", "--name=local", "--data-dir=" + state.EtcdData(),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=local=" + peer,
		// The data lives no longer than the cluster, so it need not survive a power cut.
		"--unsafe-no-fsync", "--log-level=warn",
	}
}

func apiServer(state layout.State) []string {
	return []string{
		"kube-apiserver",
		"--advertise-address=" + layout.APIServerAddress,
		fmt.Sprintf("--secure-port=%d", layout.APIServerPort),
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", layout.EtcdPort),
		"--service-cluster-ip-range=" + layout.ServiceCIDR,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--client-ca-file=" + state.PKI("ca.crt"),
		"--requestheader-client-ca-file=" + state.PKI("ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--tls-cert-file=" + state.PKI("apiserver.crt"),
		"--tls-private-key-file=" + state.PKI("apiserver.key"),
		"--cert-dir=" + state.PKI("generated"),
		"--kubelet-certificate-authority=" + state.PKI("ca.crt"),
		"--kubelet-client-certificate=" + state.PKI("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + state.PKI("apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + state.PKI("service-account.crt"),
		"--service-account-signing-key-file=" + state.PKI("service-account.key"),
	}
}

func controllerManager(state layout.State) []string {
	kubeconfig := state.ComponentKubeconfig("controller-manager")
	return []string{
		"kube-controller-manager",
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--cert-dir=" + state.PKI("generated"),
		"--leader-elect=false",
		// At the start every controller asks for its own credentials; the default rate makes them queue for seconds.
		"--kube-api-qps=200", "--kube-api-burst=400",
		"--use-service-account-credentials=true",
		"--root-ca-file=" + state.PKI("ca.crt"),
		"--service-account-private-key-file=" + state.PKI("service-account.key"),
		"--bind-address=127.0.0.1",
	}
}

func scheduler(state layout.State) []string {
	kubeconfig := state.ComponentKubeconfig("scheduler")
	return []string{
		"kube-scheduler",
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--cert-dir=" + state.PKI("generated"),
		"--leader-elect=false",
		"--bind-address=127.0.0.1",
	}
}
