package criruntime

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// runOnTerminal runs the process on a pseudo terminal whose other end is the client's streams.
func runOnTerminal(ctx context.Context, process *exec.Cmd, in io.Reader, out io.Writer, sizes <-chan remotecommand.TerminalSize) error {
	master, slave, err := openTerminal()
	if err != nil {
		return err
	}
	defer master.Close()
	process.Stdin, process.Stdout, process.Stderr = slave, slave, slave
	go follow(master, sizes)
	if in != nil {
		go func() { _, _ = io.Copy(master, in) }()
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		if out != nil {
			_, _ = io.Copy(out, master)
		}
	}()
	err = run(ctx, process)
	// With our copy of the slave closed the master reads an error once all output is through.
	slave.Close()
	<-copied
	return err
}

func openTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			master.Close()
		}
	}()
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return nil, nil, err
	}
	if err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, err
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	return master, slave, err
}

func follow(master *os.File, sizes <-chan remotecommand.TerminalSize) {
	for size := range sizes {
		_ = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Height, Col: size.Width})
	}
}
