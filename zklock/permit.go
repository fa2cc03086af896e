package zklock

import (
	"cmp"
	"errors"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/go-zookeeper/zk"
)

// The parents of a semaphore's nodes, as in Curator's InterProcessSemaphoreV2, which sees nothing
// else. The hold's node in the container excludes locks, and its name contains the limit.
//
// An attempt creates its node and a lease node. It has a permit if fewer lease nodes than the limit
// precede its own, and no waiter has a place. Otherwise a waiter deletes the lease node and takes a
// place. When its place is the first, it creates a lease node again, and is admitted when fewer
// than the limit precede it. Curator is stricter, and counts all lease nodes.
const (
	leasesParent = "leases"
	placesParent = "locks"
)

// pathIn returns the path of a node in a container, or of the container itself if node is empty.
func pathIn(container, node string) string { return strings.TrimSuffix(container+"/"+node, "/") }

// readSemaphore reads all that there is of a semaphore at the same time. The first waiter watches
// the lease nodes before it counts them.
func (s *Store) readSemaphore(h *hold) (queue []contender, places, leases []string, err error) {
	errs := make([]error, 3)
	var all sync.WaitGroup
	all.Go(func() { queue, errs[0] = s.queue(h.container) })
	all.Go(func() { places, errs[1] = s.nodesIn(h.container, placesParent) })
	all.Go(func() {
		leases, errs[2] = s.readLeases(h, s.extraNode(h, placesParent) != "" && s.extraNode(h, leasesParent) != "")
	})
	all.Wait()
	return queue, places, leases, errors.Join(errs...)
}

func (s *Store) readPermit(h *hold, asked clock.Instant) (position, error) {
	queue, places, leases, err := s.readSemaphore(h)
	if err != nil {
		return position{}, err
	}
	at, err := s.positionIn(h, queue, asked)
	if err != nil {
		return position{}, err
	}
	leaseNode, placeNode := s.extraNode(h, leasesParent), s.extraNode(h, placesParent)
	leasesAhead := slices.Index(leases, leaseNode) // negative if it is not there
	noLockAhead := at.first
	switch {
	case leasesAhead < 0 && (leaseNode != "" || placeNode == ""): // an operator removed the lease node, or both nodes
		return position{}, s.removeRemains(h)
	case leaseNode != "" && leaseNode == h.admitted, placeNode == "" && noLockAhead && len(places) == 0 && leasesAhead < h.mode.Limit:
		return s.admit(h)
	}
	at.first = false
	if noLockAhead || at.mode == h.mode {
		at.holder, at.mode = "", h.mode
		if i := slices.IndexFunc(leases, func(other string) bool { return other != leaseNode }); i >= 0 {
			at.holder = leases[i]
		}
	}
	if placeNode == "" {
		if !s.keepsNode(h) {
			return at, nil
		}
		if places, err = s.takePlace(h); err != nil {
			return position{}, err
		}
	}
	switch i := slices.Index(places, s.extraNode(h, placesParent)); {
	case i < 0:
		return position{}, s.removeRemains(h)
	case i > 0:
		at.ahead = append(at.ahead, places[i-1])
		return at, nil
	case !noLockAhead:
		return at, nil
	}
	return s.admitFirst(h, at, leases)
}

// readLeases returns the lease nodes. If watched is true and the hold has waiters, the store is
// notified of every change after that.
func (s *Store) readLeases(h *hold, watched bool) ([]string, error) {
	if watched {
		if err := s.watchAhead(h, position{ahead: []string{leasesParent}}); err != nil {
			return nil, err
		}
	}
	return s.nodesIn(h.container, leasesParent)
}

// admitFirst admits the first waiter if fewer lease nodes than the limit are before its own. A
// lease node that another owner creates later comes after it.
func (s *Store) admitFirst(h *hold, at position, leases []string) (position, error) {
	at.ahead = []string{leasesParent}
	if s.extraNode(h, leasesParent) == "" {
		err := s.takeLease(h)
		if err == nil {
			leases, err = s.readLeases(h, true)
		}
		if err != nil {
			return position{}, err
		}
	}
	switch leasesAhead := slices.Index(leases, s.extraNode(h, leasesParent)); {
	case leasesAhead < 0:
		return position{}, s.removeRemains(h)
	case leasesAhead >= h.mode.Limit:
		return at, nil
	}
	return s.admit(h)
}

// admit notes that the hold has a permit for as long as its lease node exists, and gives the place
// up for the next waiter. h.admitted lets a later attempt find a permit that Watch got, or that an
// attempt got before it failed.
func (s *Store) admit(h *hold) (position, error) {
	h.admitted = s.extraNode(h, leasesParent)
	if placeNode := s.extraNode(h, placesParent); placeNode != "" {
		if err := s.deleteIfExists(h.container, placeNode); err != nil {
			return position{}, err
		}
		s.replaceExtraNode(h, placeNode)
	}
	return position{first: true}, nil
}

// nodesIn returns the nodes below a parent in a container, in order and relative to the container.
func (s *Store) nodesIn(container, parent string) ([]string, error) {
	children, _, err := s.conn.Children(pathIn(container, parent))
	slices.SortFunc(children, func(a, b string) int { return strings.Compare(sortKey(a), sortKey(b)) })
	for i, child := range children {
		children[i] = parent + "/" + child
	}
	return children, ignore(err, zk.ErrNoNode)
}

// extraNode returns the hold's node below a parent, or an empty text.
func (s *Store) extraNode(h *hold, parent string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return nodeIn(parent, h.extraNodes)
}

// nodeIn returns the first of the nodes that is below a parent, or an empty text.
func nodeIn(parent string, nodes []string) string {
	for _, node := range nodes {
		if strings.HasPrefix(node, parent+"/") {
			return node
		}
	}
	return ""
}

// replaceExtraNode removes one of the hold's extra nodes, and adds another.
func (s *Store) replaceExtraNode(h *hold, removed string, added ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(h.extraNodes), func(node string) bool { return node == removed })
	h.extraNodes = slices.Concat(left, added)
}

// takePlace replaces the lease node by a place behind the other waiters, and returns all places.
func (s *Store) takePlace(h *hold) ([]string, error) {
	if _, err := s.prepareContainer(h, placesParent); err != nil {
		return nil, err
	}
	requests := []any{s.checkNode(h), s.creation(h, placesParent+"/"+nodePrefix(h.id)+nodeBase, nil)}
	leaseNode := s.extraNode(h, leasesParent)
	if leaseNode != "" {
		requests = append(requests, deletion(h.container, leaseNode))
	}
	answers, err := s.writeNodes(h, requests...)
	if err != nil {
		return nil, err
	}
	placeNode := h.relative(answers[1].String)
	s.replaceExtraNode(h, leaseNode, placeNode)
	if !hasUniqueNumber(placeNode) {
		return nil, s.discardNumbers(h)
	}
	return s.nodesIn(h.container, placesParent)
}

// takeLease creates the lease node of the first waiter. Its czxid, the mzxid of its parent in the
// answer, makes the token: lease nodes are created in the order of admission.
func (s *Store) takeLease(h *hold) error {
	write, err := s.prepareContainer(h, leasesParent)
	if err != nil {
		return err
	}
	answers, err := s.writeNodes(h, s.checkNode(h), s.creation(h, extraPrefix(h.id, h.mode), h.data), write)
	if err != nil {
		return err
	}
	leaseNode := h.relative(answers[1].String)
	s.replaceExtraNode(h, "", leaseNode)
	s.withLock(func() { h.token = tokenOf(answers[2].Stat.Mzxid) })
	if !hasUniqueNumber(leaseNode) {
		return s.discardNumbers(h)
	}
	return nil
}

// checkNode returns a request that fails with ErrNoNode if the hold's node is gone: its session may
// have been replaced by another, in which nothing must be created for it.
func (s *Store) checkNode(h *hold) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	const missing = "gone" // no node has this name
	return &zk.CheckVersionRequest{Path: h.container + "/" + cmp.Or(h.node, missing), Version: anyVersion}
}

// removeRemains removes what is left of a hold after an operator has removed a node of it. The
// caller creates its nodes again.
func (s *Store) removeRemains(h *hold) error {
	_, err := s.deleteOwnNodes(h)
	return cmp.Or(err, errCreateAgain)
}

// permitHolders returns the holders of a semaphore with that queue of permits, and how many wait.
// Each lease node is a holder's, except that of the first waiter.
func (s *Store) permitHolders(container string, queue []contender) (holders []contender, waiters int, err error) {
	leases, err := s.nodesIn(container, leasesParent)
	if err != nil {
		return nil, 0, err
	}
	places, err := s.nodesIn(container, placesParent)
	if err != nil {
		return nil, 0, err
	}
	nodes := make(map[string]string)
	for _, c := range queue {
		nodes[prefixOf(c.node)] = c.node
	}
	waits := make(map[string]bool)
	for _, placeNode := range places {
		waits[prefixOf(path.Base(placeNode))] = true
	}
	mode := driver.Mode{Limit: len(leases)} // if only Curator uses the semaphore, its limit is unknown: all are holders
	if len(queue) > 0 {
		mode = queue[0].mode
	}
	for _, leaseNode := range leases[:min(len(leases), mode.Limit)] {
		if prefix := prefixOf(path.Base(leaseNode)); !waits[prefix] { // Curator's have no node in the container
			holders = append(holders, contender{node: leaseNode, companion: nodes[prefix], mode: mode})
		}
	}
	return holders, len(places), nil
}
