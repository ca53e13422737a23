package supervisor

import (
	"encoding/json"
	"fmt"
	"net"
	"time"

	"distserve.io/devcluster/cell"
)

// ControlSocket is where the command line talks to the supervisor.
const ControlSocket = "control.sock"

const controlTimeout = time.Minute

// Request is one line of JSON from the command line.
type Request struct {
	// Action is status, publish, start, stop or shutdown.
	Action string `json:"action"`
	// Component is the component to start or stop.
	Component string `json:"component,omitempty"`
	// Service is NAMESPACE/SERVICE[:PORT] to publish.
	Service string `json:"service,omitempty"`
	// Port is the port of the host's loopback; 0 chooses a free one.
	Port int `json:"port,omitempty"`
}

// Status is the answer to every request.
type Status struct {
	Name       string       `json:"name"`
	Phase      Phase        `json:"phase"`
	Kubeconfig string       `json:"kubeconfig"`
	APIServer  string       `json:"apiServer"`
	Logs       string       `json:"logs"`
	Components []cell.State `json:"components"`
	Containers []Container  `json:"containers"`
	Published  []Published  `json:"published"`
	Error      string       `json:"error,omitempty"`
}

func (c *cluster) serveControl(listener *net.UnixListener) {
	for {
		connection, err := listener.AcceptUnix()
		if err != nil {
			return
		}
		go c.answer(connection)
	}
}

func (c *cluster) answer(connection *net.UnixConn) {
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(controlTimeout))
	var request Request
	if err := json.NewDecoder(connection).Decode(&request); err != nil {
		return
	}
	failure := c.obey(request)
	status, err := c.status()
	if failure == nil {
		failure = err
	}
	if failure != nil {
		status.Error = failure.Error()
	}
	_ = json.NewEncoder(connection).Encode(status)
}

func (c *cluster) obey(request Request) error {
	switch request.Action {
	case "status":
		return nil
	case "publish":
		return c.published.add(request.Service, request.Port)
	case "start", "stop":
		_, err := cell.Send(c.spec.State().Sockets(), cell.Order{Action: request.Action, Name: request.Component})
		return err
	case "shutdown":
		c.shutDown()
		return nil
	}
	return fmt.Errorf("unknown action %q", request.Action)
}
