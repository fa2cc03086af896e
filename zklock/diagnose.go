package zklock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/finding"
	"github.com/dlock-go/dlock/internal/inwords"
	"github.com/go-zookeeper/zk"
)

// Diagnose implements driver.Diagnoser.
func (s *Store) Diagnose(ctx context.Context) ([]driver.Finding, error) {
	return detached(ctx, s, "diagnosing", func(context.Context) ([]driver.Finding, error) {
		rights, err := s.checkRights()
		return []driver.Finding{rights, s.checkTimeout(), s.checkEnsemble(),
			finding.Encryption(s.opts.TLS != nil, s.conn.Server(), "Set tls=true in the URL, or Options.TLS.")}, err
	})
}

// checkRights does what a lock needs, and undoes it.
func (s *Store) checkRights() (driver.Finding, error) {
	const check = "rights"
	container := s.root + "/dlock-doctor-" + newID()
	err := s.createContainer(container)
	if err == nil {
		var node string
		if node, err = s.conn.Create(container+"/"+fairNodePrefix(newID(), driver.Mode{}), nil, zk.FlagEphemeralSequential, s.opts.ACL); err == nil {
			err = s.conn.Delete(node, anyVersion)
		}
		err = errors.Join(err, ignore(s.conn.Delete(container, anyVersion), zk.ErrNoNode)) // ZooKeeper may be faster
	}
	if err == nil {
		return finding.OK(check, "Containers and nodes can be created and removed below %s.", s.rootPath()), nil
	}
	if err = explain("trying what a lock needs below "+s.rootPath(), err); errors.Is(err, driver.ErrUnreachable) {
		return driver.Finding{}, err
	}
	return finding.Problem(check, "Locks cannot be taken: %v.", err), nil
}

func (s *Store) checkTimeout() driver.Finding {
	const check = "session_timeout"
	asked, granted := inwords.Duration(s.opts.Timeout), inwords.Duration(s.sessionTimeout())
	effect := fmt.Sprintf("The session's timeout is %s: a lock is promised for %s at a time, and is free after the timeout when its process dies.",
		granted, inwords.Duration(s.promise(driver.MaxTTL, 0)))
	if s.opts.Timeout != s.sessionTimeout() {
		return finding.Warning(check, "The server changed the session's timeout from %s to %s. %s", asked, granted, effect)
	}
	return finding.OK(check, "%s", effect)
}

// checkEnsemble asks the connected server whether it belongs to an ensemble.
func (s *Store) checkEnsemble() driver.Finding {
	const check = "ensemble"
	if s.opts.TLS != nil {
		return finding.Warning(check, "Whether the server belongs to an ensemble cannot be asked over TLS.")
	}
	version, mode := serverMode(s.conn.Server())
	switch mode {
	case "":
		return finding.Warning(check, "Whether the server belongs to an ensemble is unknown: it does not answer srvr.")
	case "standalone":
		return finding.Breaking(driver.PromiseFailover, finding.Warning(check, "ZooKeeper %s runs on one server: "+
			"locks survive its restart, but not the loss of its disk. Three servers survive the loss of one.", version))
	}
	return finding.OK(check, "ZooKeeper %s, an ensemble: locks survive while a majority of its servers works.", version)
}

// serverMode asks a server for its version and its mode: standalone, leader or follower.
// The mode is empty if the server does not answer.
func serverMode(addr string) (version, mode string) {
	const limit = 2 * time.Second
	conn, err := net.DialTimeout("tcp", addr, limit)
	if err != nil {
		return "", ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(limit)) // if one of these fails, the answer is empty
	_, _ = io.WriteString(conn, "srvr")
	answer, _ := io.ReadAll(conn)
	for line := range strings.Lines(string(answer)) {
		field, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch field {
		case "Zookeeper version":
			version, _, _ = strings.Cut(value, "-")
		case "Mode":
			mode = value
		}
	}
	return version, mode
}
