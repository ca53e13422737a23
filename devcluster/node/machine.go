package node

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	cadvisorapiv2 "github.com/google/cadvisor/info/v2"
	"golang.org/x/sys/unix"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"

	"distserve.io/devcluster/layout"
)

// machine tells the kubelet about the computer in place of cAdvisor, which needs cgroups.
type machine struct{ node layout.NodeState }

var _ cadvisor.Interface = machine{}

// Start has nothing to start.
func (machine) Start() error { return nil }

// ContainerInfoV2 answers with one empty sample for any name: the kubelet's statistics fail without an entry.
func (machine) ContainerInfoV2(name string, _ cadvisorapiv2.RequestOptions) (map[string]cadvisorapiv2.ContainerInfo, error) {
	now := time.Now()
	return map[string]cadvisorapiv2.ContainerInfo{name: {
		Spec:  cadvisorapiv2.ContainerSpec{CreationTime: now},
		Stats: []*cadvisorapiv2.ContainerStats{{Timestamp: now}},
	}}, nil
}

// GetRequestedContainersInfo knows no cgroups.
func (machine) GetRequestedContainersInfo(string, cadvisorapiv2.RequestOptions) (map[string]*cadvisorapi.ContainerInfo, error) {
	return map[string]*cadvisorapi.ContainerInfo{}, nil
}

// Cores that the node has beside the computer's own: pods ask for more than they use at the same time, and nothing enforces
// their limits here.
const sharedCores = 8

// MachineInfo is the size of the computer, with cores that are used twice.
func (m machine) MachineInfo() (*cadvisorapi.MachineInfo, error) {
	memory, err := memoryBytes()
	if err != nil {
		return nil, err
	}
	return &cadvisorapi.MachineInfo{
		Timestamp: time.Now(), NumCores: runtime.NumCPU() + sharedCores, MemoryCapacity: memory,
		MachineID: m.node.Name(), SystemUUID: m.node.Name(), BootID: firstLine("/proc/sys/kernel/random/boot_id"),
	}, nil
}

// VersionInfo names the kernel and the distribution.
func (machine) VersionInfo() (*cadvisorapi.VersionInfo, error) {
	return &cadvisorapi.VersionInfo{
		KernelVersion: firstLine("/proc/sys/kernel/osrelease"), ContainerOsVersion: distribution(),
	}, nil
}

// ImagesFsInfo is the file system of the node's folder, as are the following ones.
func (m machine) ImagesFsInfo(context.Context) (cadvisorapiv2.FsInfo, error) {
	return fileSystem(m.node.Dir)
}

// RootFsInfo see ImagesFsInfo.
func (m machine) RootFsInfo() (cadvisorapiv2.FsInfo, error) { return fileSystem(m.node.Dir) }

// ContainerFsInfo see ImagesFsInfo.
func (m machine) ContainerFsInfo(context.Context) (cadvisorapiv2.FsInfo, error) {
	return fileSystem(m.node.Dir)
}

// GetDirFsInfo is the file system of a folder.
func (machine) GetDirFsInfo(path string) (cadvisorapiv2.FsInfo, error) { return fileSystem(path) }

func fileSystem(path string) (cadvisorapiv2.FsInfo, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return cadvisorapiv2.FsInfo{}, fmt.Errorf("%s: %w", path, err)
	}
	size := uint64(stat.Bsize)
	inodes, free := stat.Files, stat.Ffree
	return cadvisorapiv2.FsInfo{
		Timestamp: time.Now(), Mountpoint: path, Capacity: stat.Blocks * size, Available: stat.Bavail * size,
		Usage: (stat.Blocks - stat.Bfree) * size, Inodes: &inodes, InodesFree: &free,
	}, nil
}

func memoryBytes() (uint64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, err
	}
	return info.Totalram * uint64(info.Unit), nil
}

func firstLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}

func distribution() string {
	file, err := os.Open("/etc/os-release")
	if err != nil {
		return "Linux"
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), "PRETTY_NAME="); found {
			return strings.Trim(value, `"`)
		}
	}
	return "Linux"
}
