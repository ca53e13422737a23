package node

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/configmap"
	"k8s.io/kubernetes/pkg/volume/downwardapi"
	"k8s.io/kubernetes/pkg/volume/emptydir"
	"k8s.io/kubernetes/pkg/volume/hostpath"
	"k8s.io/kubernetes/pkg/volume/local"
	"k8s.io/kubernetes/pkg/volume/projected"
	"k8s.io/kubernetes/pkg/volume/secret"
)

func volumePlugins() []volume.VolumePlugin {
	plugins := hostpath.ProbeVolumePlugins(volume.VolumeConfig{})
	plugins = append(plugins, local.ProbeVolumePlugins()...)
	for _, probe := range []func() []volume.VolumePlugin{
		emptydir.ProbeVolumePlugins, secret.ProbeVolumePlugins, configmap.ProbeVolumePlugins,
		projected.ProbeVolumePlugins, downwardapi.ProbeVolumePlugins,
	} {
		for _, plugin := range probe() {
			plugins = append(plugins, unowned{plugin})
		}
	}
	return plugins
}

// unowned makes volumes that belong to the one user of the user namespace, whatever runAsUser and fsGroup say:
// every other id is unmapped there, and giving a file to it would fail for ever.
type unowned struct{ volume.VolumePlugin }

// NewMounter wraps the plugin's own.
func (u unowned) NewMounter(spec *volume.Spec, pod *v1.Pod) (volume.Mounter, error) {
	mounter, err := u.VolumePlugin.NewMounter(spec, pod)
	if err != nil {
		return nil, err
	}
	return unownedMounter{mounter}, nil
}

type unownedMounter struct{ volume.Mounter }

// SetUp drops the owner.
func (u unownedMounter) SetUp(args volume.MounterArgs) error { return u.Mounter.SetUp(dropOwner(args)) }

// SetUpAt drops the owner.
func (u unownedMounter) SetUpAt(dir string, args volume.MounterArgs) error {
	return u.Mounter.SetUpAt(dir, dropOwner(args))
}

func dropOwner(args volume.MounterArgs) volume.MounterArgs {
	args.FsUser, args.FsGroup = nil, nil
	return args
}
