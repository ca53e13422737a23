package pki

import (
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"distserve.io/devcluster/layout"
)

// Create writes everything a cluster needs to trust itself, and the administrator's kubeconfig for hostURL.
func Create(spec layout.Spec, hostURL string) error {
	state := spec.State()
	if err := os.MkdirAll(state.PKI(""), 0o700); err != nil {
		return err
	}
	authority, err := NewAuthority("distserve-devcluster")
	if err != nil {
		return err
	}
	if err := layout.WriteFile(state.PKI("ca.crt"), authority.PEM, 0o644); err != nil {
		return err
	}
	if err := writeServiceAccountKey(state); err != nil {
		return err
	}
	if err := writeServers(authority, spec); err != nil {
		return err
	}
	return writeClients(authority, spec, hostURL)
}

func writeServiceAccountKey(state layout.State) error {
	pair, err := KeyPair()
	if err != nil {
		return err
	}
	return pair.Write(state, "service-account")
}

func writeServers(authority *Authority, spec layout.Spec) error {
	servers := map[string]Identity{
		"apiserver": {
			Name:      "kube-apiserver",
			Addresses: []string{"127.0.0.1", layout.APIServerAddress, layout.KubernetesService},
			Hosts: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
				"kubernetes.default.svc.cluster.local"},
		},
		"apiserver-kubelet-client": {Name: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}},
	}
	for index := range spec.Nodes {
		node := spec.State().Node(index)
		servers[node.Component()+"-serving"] = Identity{
			Name: "system:node:" + node.Name(), Groups: []string{"system:nodes"},
			Addresses: []string{node.Address()}, Hosts: []string{node.Name()},
		}
	}
	for name, identity := range servers {
		pair, err := authority.Issue(identity)
		if err != nil {
			return err
		}
		if err := pair.Write(spec.State(), name); err != nil {
			return err
		}
	}
	return nil
}

func writeClients(authority *Authority, spec layout.Spec, hostURL string) error {
	state := spec.State()
	inside := fmt.Sprintf("https://%s:%d", layout.APIServerAddress, layout.APIServerPort)
	clients := map[string]Identity{
		"controller-manager": {Name: "system:kube-controller-manager"},
		"scheduler":          {Name: "system:kube-scheduler"},
		"service-proxy":      {Name: "system:kube-proxy"},
	}
	for index := range spec.Nodes {
		node := state.Node(index)
		clients[node.Component()] = Identity{Name: "system:node:" + node.Name(), Groups: []string{"system:nodes"}}
	}
	for component, identity := range clients {
		if err := writeKubeconfig(authority, identity, inside, state.ComponentKubeconfig(component), spec.Name); err != nil {
			return err
		}
	}
	admin := Identity{Name: "distserve-dev-admin", Groups: []string{"system:masters"}}
	return writeKubeconfig(authority, admin, hostURL, state.Kubeconfig(), spec.Name)
}

func writeKubeconfig(authority *Authority, identity Identity, url, path, cluster string) error {
	pair, err := authority.Issue(identity)
	if err != nil {
		return err
	}
	context := "distserve-dev-" + cluster
	config := clientcmdapi.NewConfig()
	config.Clusters[context] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: authority.PEM}
	config.AuthInfos[context] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.Certificate, ClientKeyData: pair.Key}
	config.Contexts[context] = &clientcmdapi.Context{Cluster: context, AuthInfo: context}
	config.CurrentContext = context
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return layout.WriteFile(path, data, 0o600)
}
