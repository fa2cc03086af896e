package servers

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
)

// EtcdSynced is the argument of an Etcd whose data has to survive Kill.
const EtcdSynced = "--unsafe-no-fsync=false"

// Etcd is a cluster of one member, in the version that scripts/etcd.mod names. It
// does not wait for the disk, because with many servers at once a sync can take
// longer than a lease.
var Etcd = &Kind{
	Name:   "etcd",
	Binary: filepath.Join(etcdFolder(), "etcd"),
	Args: func(in Instance) []string {
		peer := peerURL(busPort(in.Port))
		return etcdArgs(in, "http", "dlock", peer, "dlock="+peer)
	},
	Probe: func(ctx context.Context, addr string) error {
		return probeEtcd(ctx, http.DefaultClient, "http://"+addr)
	},
	URL: func(addr string) string { return "etcd://" + addr },
}

// EtcdDebian is Etcd in Debian's version, which is several years older.
var EtcdDebian = func() *Kind {
	kind := *Etcd
	kind.Name, kind.Binary = "etcddebian", "etcd"
	return &kind
}()

// etcdFolder is where scripts/build-etcd.sh installs etcd and etcdctl. It is not
// one of root's own folders, because servers do not run as root.
func etcdFolder() string {
	cache := "/var/cache"
	if os.Geteuid() != 0 {
		var err error
		if cache, err = os.UserCacheDir(); err != nil {
			cache = os.TempDir() // the program is not found there
		}
	}
	return filepath.Join(cache, "dlock-test", "etcd")
}

// Etcdctl returns the path of the etcdctl of the same version as the server.
func (s *Server) Etcdctl() string { return filepath.Join(filepath.Dir(s.in.Binary), "etcdctl") }

func peerURL(port int) string { return "http://127.0.0.1:" + strconv.Itoa(port) }

// etcdArgs returns the arguments of the member with that name in a cluster.
func etcdArgs(in Instance, scheme, name, peer, cluster string) []string {
	client := fmt.Sprintf("%s://%s:%d", scheme, in.Host, in.Port)
	return []string{
		"--name", name,
		"--data-dir", filepath.Join(in.Data, "etcd"),
		"--listen-client-urls", client,
		"--advertise-client-urls", client,
		"--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer,
		"--initial-cluster", cluster,
		"--initial-cluster-token", "dlock",
		"--unsafe-no-fsync",
		"--bcrypt-cost", "4", // makes password checks fast
		"--logger", "zap",
		"--log-level", "warn",
	}
}

// probeEtcd checks that the member serves clients. A member without a leader
// answers but does not serve.
func probeEtcd(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", nil)
	if err != nil {
		return err
	}
	request.Close = true
	reply, err := client.Do(request)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		return err
	}
	var health struct{ Health string }
	if err := json.Unmarshal(text, &health); err != nil || health.Health != "true" {
		return fmt.Errorf("its health is %s", text)
	}
	return nil
}
