package node

import (
	"os"
	"strings"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
)

// systemLogs is where a kubelet that owns its computer keeps links to the containers' logs. This one does not own it.
const systemLogs = "/var/log/"

type operatingSystem struct{ kubecontainer.RealOS }

// MkdirAll leaves the system's log folder alone.
func (o operatingSystem) MkdirAll(path string, mode os.FileMode) error {
	if strings.HasPrefix(path, systemLogs) {
		return nil
	}
	return o.RealOS.MkdirAll(path, mode)
}

// Symlink leaves the system's log folder alone.
func (o operatingSystem) Symlink(target, link string) error {
	if strings.HasPrefix(link, systemLogs) {
		return nil
	}
	return o.RealOS.Symlink(target, link)
}

type hostUtil struct{ hostutil.HostUtils }

func newHostUtil() hostutil.HostUtils { return hostUtil{hostutil.NewHostUtil()} }

// MakeRShared does nothing: mount propagation into containers is not offered, and the root is private to the cluster.
func (hostUtil) MakeRShared(string) error { return nil }
