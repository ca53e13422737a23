package layout

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Spec is what a cluster was asked to be.
type Spec struct {
	Name       string `json:"name"`
	StateDir   string `json:"stateDir"`
	ModelsDir  string `json:"modelsDir"`
	Nodes      int    `json:"nodes"`
	GPUs       int    `json:"gpus"`
	GPUProduct string `json:"gpuProduct"`
}

// State is the cluster's folder.
func (s Spec) State() State { return State{Dir: s.StateDir} }

// ReadSpec reads the settings that the supervisor wrote into the state folder.
func ReadSpec(stateDir string) (Spec, error) {
	var spec Spec
	return spec, ReadJSON(State{Dir: stateDir}.Spec(), &spec)
}

// ReadJSON decodes the file at path into value.
func ReadJSON(path string, value any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, value); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// WriteJSON replaces the file at path in one step, so that a reader never sees half of it.
func WriteJSON(path string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return WriteFile(path, append(data, '\n'), 0o600)
}

// WriteFile replaces the file at path in one step.
func WriteFile(path string, data []byte, mode os.FileMode) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	if _, err := temporary.Write(data); err != nil {
		temporary.Close()
		return err
	}
	if err := temporary.Chmod(mode); err != nil {
		temporary.Close()
		return err
	}
	if err := temporary.Close(); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}
