package criruntime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criclient "k8s.io/cri-client/pkg"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/klog/v2"
	utilexec "k8s.io/utils/exec"

	"distserve.io/devcluster/container"
)

// streamPort is the port of the first node's stream server on the cluster's own loopback.
const streamPort = 10350

// forwardTimeout bounds the connection to a forwarded port.
const forwardTimeout = 5 * time.Second

func (r *Runtime) serveStreams() error {
	config := streaming.DefaultConfig
	config.Addr = fmt.Sprintf("127.0.0.1:%d", streamPort+r.node.Index)
	server, err := streaming.NewServer(config, streams{r})
	if err != nil {
		return err
	}
	r.streaming = server
	go func() {
		err := server.Start(true)
		klog.Background().Error(err, "The stream server ended")
	}()
	return nil
}

// Exec gives the address at which the kubelet finds the stream.
func (r *Runtime) Exec(_ context.Context, request *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	if _, err := r.entry(request.ContainerId, request.Cmd, request.Tty); err != nil {
		return nil, err
	}
	return r.streaming.GetExec(request)
}

// PortForward gives the address at which the kubelet finds the stream.
func (r *Runtime) PortForward(_ context.Context, request *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return r.streaming.GetPortForward(request)
}

func (r *Runtime) entry(id string, command []string, terminal bool) (container.Entry, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	running, err := r.container(id)
	if err != nil {
		return container.Entry{}, err
	}
	if running.state() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return container.Entry{}, fmt.Errorf("container %s is not running", id)
	}
	spec, err := running.folder().Spec()
	if err != nil {
		return container.Entry{}, err
	}
	return container.Entry{
		PID: running.started.PID, Args: command, Env: spec.Env, WorkingDir: spec.WorkingDir, Terminal: terminal,
	}, nil
}

// ExecSync runs a command to its end and returns its output.
func (r *Runtime) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) ([]byte, []byte, error) {
	entry, err := r.entry(id, command, false)
	if err != nil {
		return nil, nil, err
	}
	process, err := entry.Command()
	if err != nil {
		return nil, nil, err
	}
	var stdout, stderr bytes.Buffer
	process.Stdout, process.Stderr = &stdout, &stderr
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	err = run(ctx, process)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %q timed out after %s", criclient.ErrCommandTimedOut, strings.Join(command, " "), timeout)
	}
	return stdout.Bytes(), stderr.Bytes(), err
}

// run waits for the process or kills it when the context ends.
func run(ctx context.Context, process *exec.Cmd) error {
	if err := process.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- process.Wait() }()
	select {
	case err := <-ended:
		return exitError(err)
	case <-ctx.Done():
		_ = process.Process.Kill()
		<-ended
		return ctx.Err()
	}
}

func exitError(err error) error {
	if errors.Is(err, exec.ErrWaitDelay) {
		// The program itself ended well.
		return nil
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return utilexec.CodeExitError{Err: err, Code: exit.ExitCode()}
	}
	return err
}

// streams is what the stream server calls.
type streams struct{ runtime *Runtime }

func (s streams) Exec(ctx context.Context, id string, command []string, in io.Reader, out, errOut io.WriteCloser, terminal bool, sizes <-chan remotecommand.TerminalSize) error {
	entry, err := s.runtime.entry(id, command, terminal)
	if err != nil {
		return err
	}
	process, err := entry.Command()
	if err != nil {
		return err
	}
	if terminal {
		return runOnTerminal(ctx, process, in, out, sizes)
	}
	if out != nil {
		process.Stdout = out
	}
	if errOut != nil {
		process.Stderr = errOut
	}
	if in != nil {
		// Through a pipe of our own: Wait must not wait for a client that never ends its input.
		input, err := process.StdinPipe()
		if err != nil {
			return err
		}
		go func() {
			_, _ = io.Copy(input, in)
			input.Close()
		}()
	}
	return run(ctx, process)
}

func (s streams) Attach(context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize) error {
	return refuse("attach")
}

// PortForward joins the stream to a port of the pod's own loopback.
func (s streams) PortForward(_ context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	s.runtime.mutex.Lock()
	pod, err := s.runtime.sandbox(id)
	s.runtime.mutex.Unlock()
	if err != nil {
		return err
	}
	connection, err := dialPod(pod, fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer connection.Close()
	go func() {
		_, _ = io.Copy(connection, stream)
		_ = connection.CloseWrite()
	}()
	_, err = io.Copy(stream, connection)
	return err
}

func dialPod(pod *sandbox, address string) (*net.TCPConn, error) {
	var connection net.Conn
	dial := func() (err error) {
		connection, err = net.DialTimeout("tcp4", address, forwardTimeout)
		return err
	}
	enter := pod.namespaces().Do
	if pod.hostNetwork() {
		enter = func(action func() error) error { return action() }
	}
	if err := enter(dial); err != nil {
		return nil, err
	}
	return connection.(*net.TCPConn), nil
}
