package streams

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"
)

const connectTimeout = 5 * time.Second

// Listen serves a unix socket in folder. The kernel allows about 100 bytes for a socket's path, and a state
// folder may be deeper, so the folder is named through its descriptor.
func Listen(folder, name string) (*net.UnixListener, error) {
	if err := os.Remove(filepath.Join(folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	directory, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	defer directory.Close()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: throughDescriptor(directory, name), Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	return listener, os.Chmod(filepath.Join(folder, name), 0o600)
}

// Connect opens a unix socket in folder.
func Connect(folder, name string) (*net.UnixConn, error) {
	directory, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	defer directory.Close()
	connection, err := net.DialTimeout("unix", throughDescriptor(directory, name), connectTimeout)
	if err != nil {
		return nil, err
	}
	return connection.(*net.UnixConn), nil
}

func throughDescriptor(directory *os.File, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", directory.Fd(), name)
}
