package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const maxLinks = 40

// hostDevices are the devices that every container gets.
var hostDevices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// tree is a root file system under construction.
type tree struct{ root string }

func (t tree) mountSystem(spec Spec) error {
	if err := unix.Mount("proc", filepath.Join(t.root, "proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	dev := filepath.Join(t.root, "dev")
	if err := mountTmpfs(dev, "mode=0755"); err != nil {
		return err
	}
	links := map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
		"ptmx": "pts/ptmx",
	}
	for name, link := range links {
		if err := os.Symlink(link, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	for _, name := range hostDevices {
		if err := t.bind(Mount{Source: filepath.Join("/dev", name), Target: filepath.Join("/dev", name)}); err != nil {
			return err
		}
	}
	pts := filepath.Join(dev, "pts")
	if err := os.Mkdir(pts, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("devpts", pts, "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"); err != nil {
		return fmt.Errorf("mount /dev/pts: %w", err)
	}
	return t.bind(Mount{Source: spec.SharedMem, Target: "/dev/shm"})
}

func (t tree) mountPrivate() error {
	for _, path := range Private {
		target, err := t.make(path, true)
		if err != nil {
			return err
		}
		mode := "mode=1777"
		if path == "/run" {
			mode = "mode=0755"
		}
		if err := mountTmpfs(target, mode); err != nil {
			return err
		}
	}
	return nil
}

// hide takes folders of the host out of sight, with everything that is mounted in them: the state of the cluster holds its
// administrator's key, and a copy of another pod's memory volume would keep that memory in use.
func (t tree) hide(folders []string) error {
	for _, folder := range folders {
		target := filepath.Join(t.root, folder)
		if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := detachBelow(target); err != nil {
			return err
		}
		if err := unix.Mount("tmpfs", target, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
			return fmt.Errorf("hide %s: %w", folder, err)
		}
	}
	return nil
}

func detachBelow(folder string) error {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for _, line := range strings.Split(string(table), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 5 || !strings.HasPrefix(fields[4], folder+"/") {
			continue
		}
		if err := unix.Unmount(fields[4], unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("detach %s: %w", fields[4], err)
		}
	}
	return nil
}

func (t tree) mountVolumes(mounts []Mount) error {
	for _, mount := range shallowFirst(mounts) {
		if err := t.bind(mount); err != nil {
			return err
		}
	}
	return nil
}

func (t tree) mountDevices(devices []string) error {
	for _, device := range devices {
		if err := t.bind(Mount{Source: device, Target: device}); err != nil {
			return err
		}
	}
	return nil
}

func (t tree) bind(mount Mount) error {
	info, err := os.Stat(mount.Source)
	if err != nil {
		return err
	}
	target, err := t.make(mount.Target, info.IsDir())
	if err != nil {
		return fmt.Errorf("mount point %s: %w", mount.Target, err)
	}
	if err := unix.Mount(mount.Source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s at %s: %w", mount.Source, mount.Target, err)
	}
	if !mount.ReadOnly {
		return nil
	}
	return setReadOnly(target, true, unix.AT_RECURSIVE)
}

// make returns where path lies in the tree, following the links on the way as the container will see them, and creates
// what is missing. A missing entry in a read-only folder of the host makes that folder a mirror of itself.
func (t tree) make(path string, folder bool) (string, error) {
	current := t.root
	rest := segments(path)
	for links := 0; len(rest) > 0; {
		next := filepath.Join(current, rest[0])
		info, err := os.Lstat(next)
		switch {
		case err == nil && info.Mode()&os.ModeSymlink != 0:
			if links++; links > maxLinks {
				return "", unix.ELOOP
			}
			current, rest, err = t.follow(current, next, rest[1:])
			if err != nil {
				return "", err
			}
			continue
		case errors.Is(err, fs.ErrNotExist):
			if err := t.create(current, next, folder || len(rest) > 1); err != nil {
				return "", err
			}
		case err != nil:
			return "", err
		}
		current, rest = next, rest[1:]
	}
	return current, nil
}

func (t tree) follow(current, link string, rest []string) (string, []string, error) {
	target, err := os.Readlink(link)
	if err != nil {
		return "", nil, err
	}
	if filepath.IsAbs(target) {
		return t.root, append(segments(target), rest...), nil
	}
	inside := strings.TrimPrefix(filepath.Join(current, target), t.root)
	if !strings.HasPrefix(filepath.Join(current, target)+"/", t.root+"/") {
		inside = ""
	}
	return t.root, append(segments(inside), rest...), nil
}

func (t tree) create(parent, path string, folder bool) error {
	makeEntry := func() error {
		if folder {
			return os.Mkdir(path, 0o755)
		}
		return touch(path)
	}
	err := makeEntry()
	if !errors.Is(err, unix.EROFS) && !errors.Is(err, unix.EACCES) {
		return err
	}
	if err := mirror(parent, parent, nil); err != nil {
		return err
	}
	return makeEntry()
}

func segments(path string) []string {
	var parts []string
	for _, part := range strings.Split(filepath.Clean("/"+path), "/") {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}
