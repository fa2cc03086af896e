package servers

import (
	"context"
	"strconv"

	"github.com/dlock-go/dlock/test/harness/servers/internal/wire"
)

// Redis keeps its data in an append-only file that is synced before every answer,
// so that acknowledged data survives Kill. Arguments of Start can turn that off
// ("--appendonly", "no") or make it evict data without a crash ("--maxmemory",
// "2mb", "--maxmemory-policy", "allkeys-lru").
var Redis = &Kind{
	Name:   "redis",
	Binary: "redis-server",
	Args: func(in Instance) []string {
		return []string{
			"--bind", in.Host,
			"--port", strconv.Itoa(in.Port),
			"--dir", in.Data,
			"--appendonly", "yes",
			"--appendfsync", "always",
			"--save", "",
			"--daemonize", "no",
		}
	},
	Probe: func(ctx context.Context, addr string) error {
		return wire.Exchange(ctx, addr, "PING\r\n", "+PONG\r\n") // -LOADING until the data is loaded
	},
	URL: func(addr string) string { return "redis://" + addr + "/0" },
}
