package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Private are the folders that are the container's own and empty at its start, whatever the host has there.
var Private = []string{"/tmp", "/run", "/var/tmp"}

// ownTopFolders are made anew in every container instead of being bound from the host.
var ownTopFolders = []string{"dev", "proc", "run", "tmp"}

// buildRoot makes root a read-only view of the host with the container's own /dev, /proc, /tmp, volumes and files,
// and moves this process into it.
func buildRoot(root string, spec Spec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	if err := mirror("/", root, ownTopFolders); err != nil {
		return err
	}
	tree := tree{root: root}
	steps := []func() error{
		func() error { return protect(root) },
		func() error { return tree.mountSystem(spec) },
		func() error { return tree.mountPrivate() },
		func() error { return tree.mountVolumes(spec.Files) },
		func() error { return tree.mountVolumes(spec.Mounts) },
		// after the volumes, one of which may be at /tmp
		func() error { return tree.mountVolumes(spec.HostPaths) },
		func() error { return tree.hide(spec.Hidden) },
		func() error { return tree.mountDevices(spec.Devices) },
		func() error { return pivot(root) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// mirror makes target a tmpfs with the same entries as source: folders and files are bound, links are made again.
// Entries can then be added to it, which a read-only bind of source would not allow. Folders named in empty stay empty.
func mirror(source, target string, empty []string) error {
	entries, err := os.ReadDir(source)
	if err != nil {
		return err
	}
	// Read first: the tmpfs may be mounted over source itself.
	folder, err := os.Open(source)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := mountTmpfs(target, "mode=0755"); err != nil {
		return err
	}
	// The target may lie inside a folder that is bound below it: an unbindable mount is left out of such copies.
	if err := unix.Mount("", target, "", unix.MS_UNBINDABLE, ""); err != nil {
		return fmt.Errorf("keep %s out of copies: %w", target, err)
	}
	for _, name := range empty {
		if err := os.Mkdir(filepath.Join(target, name), 0o755); err != nil {
			return err
		}
	}
	for _, entry := range entries {
		if slices.Contains(empty, entry.Name()) {
			continue
		}
		from := fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), entry.Name())
		if err := mirrorEntry(entry, from, filepath.Join(target, entry.Name())); err != nil {
			return fmt.Errorf("mirror %s: %w", filepath.Join(source, entry.Name()), err)
		}
	}
	return nil
}

func mirrorEntry(entry os.DirEntry, from, to string) error {
	switch {
	case entry.Type()&os.ModeSymlink != 0:
		link, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(link, to)
	case entry.IsDir():
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
	default:
		if err := touch(to); err != nil {
			return err
		}
	}
	err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOENT) {
		// A folder that this user may not enter stays an empty one.
		return nil
	}
	return err
}

// protect makes every mount of the tree read-only, the host's file systems below it included.
func protect(root string) error {
	if err := setReadOnly(root, true, unix.AT_RECURSIVE); err != nil {
		return err
	}
	// The top is our tmpfs; it stays open for mount points until the end.
	return setReadOnly(root, false, 0)
}

// setReadOnly changes one mount, or with AT_RECURSIVE also all those below it.
func setReadOnly(path string, readOnly bool, flags uint) error {
	attributes := unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
	if readOnly {
		attributes = unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, path, flags, &attributes); err != nil {
		return fmt.Errorf("read-only=%t for %s (needs Linux 5.12): %w", readOnly, path, err)
	}
	return nil
}

func pivot(root string) error {
	if err := setReadOnly(root, true, 0); err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	// The old root is stacked on the new one and then taken off: no folder for it is needed.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the host's root: %w", err)
	}
	return os.Chdir("/")
}

func mountTmpfs(target, options string) error {
	if err := unix.Mount("tmpfs", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("tmpfs at %s: %w", target, err)
	}
	return nil
}

func touch(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

// shallowFirst orders mounts so that a volume inside another one is mounted after it.
func shallowFirst(mounts []Mount) []Mount {
	sorted := slices.Clone(mounts)
	slices.SortStableFunc(sorted, func(a, b Mount) int {
		return strings.Count(filepath.Clean(a.Target), "/") - strings.Count(filepath.Clean(b.Target), "/")
	})
	return sorted
}
