package stories

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/lab/child"
	harness "github.com/dlock-go/dlock/test/harness/child"
)

// balancer sends each request to the next shop.
type balancer struct {
	network, address string
	close            func()
}

func (b *balancer) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, b.network, b.address)
}

func startProxy(shops []string, clients int) *balancer {
	var next atomic.Uint64
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Transport: transport,
		ErrorLog:  log.New(io.Discard, "", 0), // the clients get every error
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: shops[(next.Add(1)-1)%uint64(len(shops))]})
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "the shop does not answer: "+err.Error(), http.StatusBadGateway)
		},
	})
	return &balancer{"tcp", server.Listener.Addr().String(), func() {
		server.Close()
		transport.CloseIdleConnections()
	}}
}

// request returns the status and the text of an answer. It fails if the status is not wanted.
func request(ctx context.Context, client *http.Client, method, to, token string, wanted ...int) (status int, text string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, to, nil)
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	text = strings.TrimSpace(string(body))
	if err == nil && !slices.Contains(wanted, answer.StatusCode) {
		err = errors.New(text)
	}
	return answer.StatusCode, text, err
}

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

// startNginx runs nginx on a socket in folder, which needs no free port.
func startNginx(ctx context.Context, program, folder string, shops []string, clients int) (*balancer, error) {
	var upstream strings.Builder
	for _, shop := range shops {
		fmt.Fprintf(&upstream, "\t\tserver %s max_fails=0;\n", shop)
	}
	config := filepath.Join(folder, "nginx.conf")
	text := fmt.Appendf(nil, nginxConfig, folder, upstream.String(), clients)
	if err := os.WriteFile(config, text, 0o600); err != nil {
		return nil, err
	}
	var log child.Log
	cmd := exec.Command(program, "-p", folder, "-c", config)
	cmd.Stderr = &log
	nginx, err := harness.Start(cmd, func(string) {})
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", program, err)
	}
	front := &balancer{"unix", filepath.Join(folder, "nginx.sock"), nginx.Kill} // its files are in the folder
	if err := front.ready(ctx, nginx.Ended()); err != nil {
		front.close()
		return nil, log.Explain(err)
	}
	return front, nil
}

func (b *balancer) ready(ctx context.Context, ended <-chan struct{}) error {
	const limit = 5 * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("nginx does not answer"))
	defer cancel()
	for {
		if conn, err := b.dial(ctx); err == nil {
			return conn.Close()
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ended:
			return errors.New("nginx has ended")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
