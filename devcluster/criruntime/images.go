package criruntime

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"distserve.io/devcluster/layout"
)

// imageUser is reported as every image's user: any id but 0 passes runAsNonRoot, and no id is ever switched to.
const imageUser = 65532

// Image is what an image name stands for: the host's root, read-only, and a program to start.
type Image struct {
	Entrypoint []string          `json:"entrypoint"`
	Env        map[string]string `json:"env"`
	WorkingDir string            `json:"workingDir"`
	// Paths are folders of the host that the program needs, wherever they are.
	Paths []string `json:"paths"`
}

// Images is the file that lists them. It is read at every look-up, so that it can be edited while the cluster runs.
type Images struct {
	File   string
	Folder string
}

var _ cri.ImageManagerService = Images{}

func (i Images) read() (map[string]Image, error) {
	known := map[string]Image{}
	return known, layout.ReadJSON(i.File, &known)
}

// Find returns the image with exactly this name.
func (i Images) Find(name string) (Image, error) {
	known, err := i.read()
	if err != nil {
		return Image{}, err
	}
	image, found := known[name]
	if !found {
		return Image{}, fmt.Errorf("image %q is not known to the local cluster, which pulls nothing; known images: %s", name, strings.Join(names(known), ", "))
	}
	return image, nil
}

func names(known map[string]Image) []string {
	list := make([]string, 0, len(known))
	for name := range known {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

func describe(name string) *runtimeapi.Image {
	return &runtimeapi.Image{
		Id: name, RepoTags: []string{name}, Size: 1, Uid: &runtimeapi.Int64Value{Value: imageUser},
		Spec: &runtimeapi.ImageSpec{Image: name}, Pinned: true,
	}
}

// ListImages lists all known images.
func (i Images) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	known, err := i.read()
	if err != nil {
		return nil, err
	}
	images := make([]*runtimeapi.Image, 0, len(known))
	for _, name := range names(known) {
		images = append(images, describe(name))
	}
	return images, nil
}

// ImageStatus answers an empty response for an unknown image, as the interface asks.
func (i Images) ImageStatus(_ context.Context, spec *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	known, err := i.read()
	if err != nil {
		return nil, err
	}
	if _, found := known[spec.Image]; !found {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return &runtimeapi.ImageStatusResponse{Image: describe(spec.Image)}, nil
}

// PullImage succeeds for a known image and otherwise fails as a registry would.
func (i Images) PullImage(_ context.Context, spec *runtimeapi.ImageSpec, _ *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	if _, err := i.Find(spec.Image); err != nil {
		return "", err
	}
	return spec.Image, nil
}

// RemoveImage has nothing to remove.
func (i Images) RemoveImage(context.Context, *runtimeapi.ImageSpec) error { return nil }

// ImageFsInfo describes the file system of the node's folder.
func (i Images) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	usage, err := fileSystemUsage(i.Folder)
	if err != nil {
		return nil, err
	}
	usages := []*runtimeapi.FilesystemUsage{usage}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: usages, ContainerFilesystems: usages}, nil
}

// Close has nothing to end.
func (i Images) Close(context.Context) error { return nil }

func fileSystemUsage(folder string) (*runtimeapi.FilesystemUsage, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(folder, &stat); err != nil {
		return nil, err
	}
	used := (stat.Blocks - stat.Bfree) * uint64(stat.Bsize)
	return &runtimeapi.FilesystemUsage{
		Timestamp:  time.Now().UnixNano(),
		FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: folder},
		UsedBytes:  &runtimeapi.UInt64Value{Value: used},
		InodesUsed: &runtimeapi.UInt64Value{Value: stat.Files - stat.Ffree},
	}, nil
}
