// Package layout names every address and every file of a local cluster, so that no two packages can disagree.
package layout

import (
	"fmt"
	"path/filepath"
	"regexp"
)

// Addresses inside the cluster's own network namespace. They are constants because the namespace is ours alone.
const (
	ServiceCIDR       = "10.96.0.0/16"
	KubernetesService = "10.96.0.1"
	DNSService        = "10.96.0.10"
	PodCIDR           = "10.244.0.0/16"
	PodGateway        = "10.244.0.1"
	APIServerAddress  = "10.200.0.1"
	APIServerPort     = 6443
	EtcdPort          = 2379
	EtcdPeerPort      = 2380
	kubeletPort       = 10250
)

// RecordFile is the file of a container's folder that names its pod.
const RecordFile = "record.json"

// ClaimFile is the file of a state folder that says that the folder is a cluster's own; LockFile is held by its supervisor.
const (
	ClaimFile = "change.lock"
	LockFile  = "lock"
)

// ofOneRun has numbers where a killed process did not get to rename its temporary file.
var ofOneRun = regexp.MustCompile(`^((spec\.json|kubeconfig)(\.[0-9]+)?|pki|etcd|run|node-[0-9]+)$`)

// OfOneRun says whether an entry of the state folder belongs to one run of a cluster, so that the next one begins without it.
func OfOneRun(name string) bool { return ofOneRun.MatchString(name) }

// State is the folder that holds everything about one cluster.
type State struct{ Dir string }

func (s State) path(parts ...string) string {
	return filepath.Join(append([]string{s.Dir}, parts...)...)
}

// Spec is the file in which the supervisor hands the cluster's settings to the processes inside.
func (s State) Spec() string { return s.path("spec.json") }

// Kubeconfig is the administrator's kubeconfig for use on the host.
func (s State) Kubeconfig() string { return s.path("kubeconfig") }

// Images maps image names to entry points.
func (s State) Images() string { return s.path("images.json") }

// PKI holds keys and certificates.
func (s State) PKI(file string) string { return s.path("pki", file) }

// EtcdData is etcd's data folder.
func (s State) EtcdData() string { return s.path("etcd") }

// Logs is the folder of the components' logs.
func (s State) Logs() string { return s.path("logs") }

// Log is the log file of one component.
func (s State) Log(component string) string { return s.path("logs", component+".log") }

// Sockets is the folder of the unix sockets.
func (s State) Sockets() string { return s.path("run") }

// ComponentKubeconfig is for a component, which lives inside the namespaces.
func (s State) ComponentKubeconfig(component string) string {
	return s.path("pki", component+".kubeconfig")
}

// Node is the folder of one node.
func (s State) Node(index int) NodeState {
	return NodeState{Index: index, Dir: s.path(fmt.Sprintf("node-%d", index))}
}

// NodeState is the folder of one node.
type NodeState struct {
	Index int
	Dir   string
}

// Name is the node's name in the API.
func (n NodeState) Name() string { return fmt.Sprintf("distserve-node-%d", n.Index) }

// Component is the name of the node's process among the components.
func (n NodeState) Component() string { return fmt.Sprintf("node-%d", n.Index) }

// Address is the node's address inside the cluster's network namespace.
func (n NodeState) Address() string { return fmt.Sprintf("10.200.1.%d", n.Index+1) }

// KubeletPort differs between nodes, since all of them share one network namespace.
func (n NodeState) KubeletPort() int { return kubeletPort + n.Index }

// PodPrefix holds the first three bytes of the addresses of the node's pods.
func (n NodeState) PodPrefix() string { return fmt.Sprintf("10.244.%d", n.Index) }

// Kubelet is the kubelet's root folder.
func (n NodeState) Kubelet() string { return filepath.Join(n.Dir, "kubelet") }

// PodLogs is the folder of the containers' logs.
func (n NodeState) PodLogs() string { return filepath.Join(n.Dir, "pod-logs") }

// Sandboxes is the folder of the pods' namespaces.
func (n NodeState) Sandboxes() string { return filepath.Join(n.Dir, "sandboxes") }

// Containers is the folder of the runtime's containers.
func (n NodeState) Containers() string { return filepath.Join(n.Dir, "containers") }
