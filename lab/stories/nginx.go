package stories

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/dlock-go/dlock/lab/child"
	"github.com/dlock-go/dlock/lab/stage"
	harness "github.com/dlock-go/dlock/test/harness/child"
)

// One process, so that there is one round robin. No request is sent twice: it may have sold one.
const nginxConfig = `daemon off;
master_process off;
pid "%[1]s/nginx.pid";
error_log stderr;
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path "%[1]s/body";
	proxy_temp_path "%[1]s/proxy";
	fastcgi_temp_path "%[1]s/fastcgi";
	uwsgi_temp_path "%[1]s/uwsgi";
	scgi_temp_path "%[1]s/scgi";
	upstream shops {
%[2]s		keepalive %[3]d;
	}
	server {
		listen "unix:%[1]s/nginx.sock";
		location / {
			proxy_pass http://shops;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_next_upstream off;
		}
	}
}
`

// nginx balances requests. It listens on a socket in a folder, which needs no free port.
type nginx struct {
	*child.Process
	socket string
}

func startNginx(ctx context.Context, folder string, shops []*stage.Process, clients int) (*nginx, error) {
	program, err := exec.LookPath("nginx")
	if err != nil {
		return nil, errors.New("there is no nginx in the PATH (Debian has it in /usr/sbin): install it, or leave out --nginx")
	}
	var upstream strings.Builder
	for _, shop := range shops {
		fmt.Fprintf(&upstream, "\t\tserver %s max_fails=0;\n", strings.TrimPrefix(shop.Says, "http://"))
	}
	config := filepath.Join(folder, "nginx.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, nginxConfig, folder, upstream.String(), clients), 0o600); err != nil {
		return nil, err
	}
	var log child.Log
	cmd := exec.Command(program, "-p", folder, "-c", config)
	cmd.Stderr = &log
	process, err := harness.Start(cmd, func(string) {})
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", program, err)
	}
	n := &nginx{process, filepath.Join(folder, "nginx.sock")}
	if err := n.ready(ctx); err != nil {
		n.Kill()
		return nil, log.Explain(err)
	}
	return n, nil
}

func (n *nginx) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", n.socket)
}

func (n *nginx) ready(ctx context.Context) error {
	const limit = 5 * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("nginx does not answer"))
	defer cancel()
	for {
		if conn, err := n.dial(ctx, "", ""); err == nil {
			return conn.Close()
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-n.Ended():
			return errors.New("nginx has ended")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
