package supervisor

import (
	"context"
	"fmt"
	"log"
	"net"
	"sync"

	"distserve.io/devcluster/cell"
	"distserve.io/devcluster/layout"
	"distserve.io/devcluster/pki"
	"distserve.io/devcluster/streams"
)

// Phase says how far a cluster is.
type Phase string

// A cluster is starting until its node is ready; when it fails the supervisor ends, so there is no third phase.
const (
	Starting Phase = "starting"
	Ready    Phase = "ready"
)

// cluster is a running cluster as its supervisor sees it.
type cluster struct {
	spec      layout.Spec
	shutDown  context.CancelFunc
	apiServer string
	published *publisher
	sockets   []net.Listener

	mutex sync.Mutex
	phase Phase
	cell  int
}

func newCluster(spec layout.Spec, shutDown context.CancelFunc) (*cluster, error) {
	state := spec.State()
	cluster := &cluster{spec: spec, shutDown: shutDown, phase: Starting, published: newPublisher(state.Sockets())}
	api, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	cluster.sockets = append(cluster.sockets, api)
	cluster.apiServer = "https://" + api.Addr().String()
	if err := layout.WriteJSON(state.Spec(), spec); err != nil {
		return nil, err
	}
	if err := pki.Create(spec, cluster.apiServer); err != nil {
		return nil, err
	}
	control, err := streams.Listen(state.Sockets(), ControlSocket)
	if err != nil {
		return nil, err
	}
	cluster.sockets = append(cluster.sockets, control)
	target := fmt.Sprintf("tcp %s:%d", layout.APIServerAddress, layout.APIServerPort)
	go forward(api, state.Sockets(), target)
	go cluster.serveControl(control)
	return cluster, nil
}

func (c *cluster) close() {
	for _, socket := range c.sockets {
		socket.Close()
	}
	c.published.close()
}

// run starts the cell and waits for its end or for the order to end it.
func (c *cluster) run(ctx context.Context) error {
	running, err := startCell(c.spec)
	if err != nil {
		return err
	}
	c.mutex.Lock()
	c.cell = running.pid()
	c.mutex.Unlock()
	var exit error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		exit = running.wait()
	}()
	// Until the last process is gone: whoever starts the next cluster must find none of this one.
	defer func() {
		running.kill()
		<-ended
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready := make(chan error, 1)
	go func() { ready <- bootstrap(ctx, c.spec) }()
	for {
		select {
		case <-ended:
			return fmt.Errorf("the cluster's first process ended: %w", exit)
		case <-ctx.Done():
			return nil
		case err := <-ready:
			if err != nil {
				return fmt.Errorf("%w; logs of the components: %s", err, c.spec.State().Logs())
			}
			c.mutex.Lock()
			c.phase = Ready
			c.mutex.Unlock()
			log.Printf("supervise: cluster %q is ready at %s", c.spec.Name, c.apiServer)
			ready = nil
		}
	}
}

func (c *cluster) status() (Status, error) {
	c.mutex.Lock()
	phase, cellPID := c.phase, c.cell
	c.mutex.Unlock()
	status := Status{
		Name: c.spec.Name, Phase: phase, Kubeconfig: c.spec.State().Kubeconfig(), APIServer: c.apiServer,
		Logs: c.spec.State().Logs(), Components: []cell.State{}, Containers: []Container{}, Published: c.published.list(),
	}
	if cellPID == 0 {
		return status, nil
	}
	answer, err := cell.Send(c.spec.State().Sockets(), cell.Order{Action: "list"})
	if err != nil {
		// The cell has not opened its socket yet.
		return status, nil
	}
	pids, err := hostPIDs(cellPID)
	if err != nil {
		return status, err
	}
	for _, component := range answer.Components {
		component.PID = pids[component.PID]
		status.Components = append(status.Components, component)
	}
	status.Containers, err = containers(c.spec, pids)
	return status, err
}
