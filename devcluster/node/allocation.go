package node

import (
	"fmt"
	"slices"
)

// allocation says which device ids a container holds; the key is the pod's uid and the container's name.
type allocation map[string][]int

// allocate returns the ids of key: those it already has, or the lowest free ones of total. Containers of pods that are
// no longer live give theirs back.
func (a allocation) allocate(key string, count, total int, live func(key string) bool) ([]int, error) {
	if held, found := a[key]; found && len(held) == count {
		return held, nil
	}
	for other := range a {
		if other == key || !live(other) {
			delete(a, other)
		}
	}
	taken := map[int]bool{}
	for _, ids := range a {
		for _, id := range ids {
			taken[id] = true
		}
	}
	var free []int
	for id := range total {
		if !taken[id] && len(free) < count {
			free = append(free, id)
		}
	}
	if len(free) < count {
		return nil, fmt.Errorf("%d devices asked for, %d of %d are free", count, len(free), total)
	}
	a[key] = free
	return slices.Clone(free), nil
}
