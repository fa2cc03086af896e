package servers

import (
	"context"
	"strconv"

	"github.com/dlock-go/dlock/test/harness/servers/internal/wire"
)

// Memcached keeps nothing across a restart.
var Memcached = &Kind{
	Name:   "memcached",
	Binary: "memcached",
	Args: func(in Instance) []string {
		return []string{"-l", in.Host, "-p", strconv.Itoa(in.Port), "-U", "0"}
	},
	Probe: func(ctx context.Context, addr string) error {
		return wire.Exchange(ctx, addr, "version\r\n", "VERSION ")
	},
	URL: func(addr string) string { return "memcached://" + addr },
}
