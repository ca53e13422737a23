package supervisor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"distserve.io/devcluster/container"
	"distserve.io/devcluster/layout"
)

// Container is a running container with the host's id of its first process.
type Container struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	PID       int    `json:"pid"`
}

// process is what /proc says about one process: its parent, and its ids from our PID namespace inwards.
type process struct {
	parent int
	ids    []int
}

// hostPIDs maps the ids inside the cell's PID namespace to ours.
func hostPIDs(cell int) (map[int]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all := map[int]process{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// A process may end while we look.
		if found, err := readProcess(pid); err == nil {
			all[pid] = found
		}
	}
	inside := map[int]int{}
	for pid, found := range all {
		if len(found.ids) > 1 && descends(pid, cell, all) {
			inside[found.ids[1]] = pid
		}
	}
	return inside, nil
}

func descends(pid, ancestor int, all map[int]process) bool {
	for pid != 0 {
		if pid == ancestor {
			return true
		}
		pid = all[pid].parent
	}
	return false
}

func readProcess(pid int) (process, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return process{}, err
	}
	var found process
	for _, line := range strings.Split(string(text), "\n") {
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "PPid":
			if found.parent, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return process{}, err
			}
		case "NSpid":
			for _, field := range strings.Fields(value) {
				id, err := strconv.Atoi(field)
				if err != nil {
					return process{}, err
				}
				found.ids = append(found.ids, id)
			}
		}
	}
	return found, nil
}

// containers reads the runtime's records of every node and keeps those whose first process is there.
func containers(spec layout.Spec, pids map[int]int) ([]Container, error) {
	running := []Container{}
	for index := range spec.Nodes {
		folder := spec.State().Node(index).Containers()
		entries, err := os.ReadDir(folder)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return running, err
		}
		for _, entry := range entries {
			if found, runs := inspect(filepath.Join(folder, entry.Name()), pids); runs {
				running = append(running, found)
			}
		}
	}
	slices.SortFunc(running, func(a, b Container) int {
		return strings.Compare(a.Namespace+"/"+a.Pod+"/"+a.Container, b.Namespace+"/"+b.Pod+"/"+b.Container)
	})
	return running, nil
}

func inspect(dir string, pids map[int]int) (Container, bool) {
	folder := container.Folder{Dir: dir}
	started, err := folder.Started()
	if err != nil || started.Error != "" {
		return Container{}, false
	}
	if _, err := folder.Exited(); err == nil {
		return Container{}, false
	}
	var found Container
	if err := layout.ReadJSON(filepath.Join(dir, layout.RecordFile), &found); err != nil {
		return Container{}, false
	}
	var known bool
	found.PID, known = pids[started.PID]
	return found, known
}
