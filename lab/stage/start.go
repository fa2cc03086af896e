//go:build linux

package stage

import (
	"strings"

	"github.com/dlock-go/dlock/test/harness/servers"
)

// Start starts a server. query is for its URL.
func Start(kind *servers.Kind, query string, args ...string) (*Server, error) {
	server, err := servers.Start(kind, args...)
	if err != nil {
		return nil, err
	}
	s := Around(servers.Group{server}, kind.URL, query)
	s.Any = server
	return s, nil
}

// StartRedlock starts independent servers.
func StartRedlock(n int, kind *servers.Kind, args ...string) (*Server, error) {
	members, err := servers.StartGroup(n, kind, args...)
	return Around(members, func(list string) string { return "redlock://" + list }, ""), err
}

// StartEtcdCluster starts three servers.
func StartEtcdCluster() (*Server, error) {
	cluster, err := servers.StartEtcdCluster(nil)
	if err != nil {
		return nil, err
	}
	s := Around(cluster.Members, servers.Etcd.URL, "")
	s.Any = cluster
	return s, nil
}

// Around returns where to lock with servers that run. url returns a URL for a list of addresses.
func Around(members servers.Group, url func(list string) string, query string) *Server {
	return &Server{Addrs: members.Addrs(), Stop: members.Stop, Any: members, URL: func(addrs []string) string {
		found := url(strings.Join(addrs, ","))
		switch {
		case query == "":
			return found
		case strings.Contains(found, "?"):
			return found + "&" + query
		}
		return found + "?" + query
	}}
}
