package stories

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/lab/child"
)

// balancer sends each request to the next shop.
type balancer struct {
	network, address string
	close            func()
}

func (b *balancer) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, b.network, b.address)
}

func startProxy(ctx context.Context, shops []string, clients int) (*balancer, error) {
	var next atomic.Uint64
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	server, err := startServer(ctx, &httputil.ReverseProxy{
		Transport: transport,
		ErrorLog:  silent,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: shops[(next.Add(1)-1)%uint64(len(shops))]})
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "the shop does not answer: "+err.Error(), http.StatusBadGateway)
		},
	}, transport.CloseIdleConnections)
	if err != nil {
		return nil, err
	}
	return &balancer{"tcp", server.address, server.close}, nil
}

type localServer struct {
	http.Server
	address string
	ended   chan struct{}
	err     error // why it has ended
}

// silent is the log of servers, whose clients get every error.
var silent = log.New(io.Discard, "", 0)

// startServer serves on a free port. It calls ended at the end.
func startServer(ctx context.Context, handler http.Handler, ended func()) (*localServer, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s := &localServer{address: listener.Addr().String(), ended: make(chan struct{})}
	s.Handler, s.ReadHeaderTimeout, s.ErrorLog = handler, time.Minute, silent
	go func() {
		defer close(s.ended)
		s.err = s.Serve(listener)
		_ = listener.Close() // is closed already, unless Serve has failed
		ended()
	}()
	return s, nil
}

func (s *localServer) close() {
	_ = s.Server.Close() // no request is pending
	<-s.ended
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
error_log "%[1]s/error.log";
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

// nginxLimit is how long nginx may take to start and to end.
const nginxLimit = 5 * time.Second

// startNginx runs nginx on a socket in folder, which needs no free port.
func startNginx(ctx context.Context, program, folder string, shops []string, clients int) (*balancer, error) {
	var upstream strings.Builder
	for _, shop := range shops {
		fmt.Fprintf(&upstream, "\t\tserver %s max_fails=0;\n", shop)
	}
	config := filepath.Join(folder, "nginx.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, nginxConfig, folder, upstream.String(), clients), 0o600); err != nil {
		return nil, err
	}
	var output bytes.Buffer
	running, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	front := &balancer{"unix", filepath.Join(folder, "nginx.sock"), func() { stop(); <-ended }}
	cmd := exec.CommandContext(running, program, "-p", folder, "-c", config)
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = child.Attributes()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = nginxLimit
	var failure error // why it has ended
	go func() {
		defer close(ended)
		// Attributes may let it die with the thread that started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		failure = cmd.Run()
	}()
	if err := front.ready(ctx, ended); err != nil {
		front.close()
		if cmd.Process == nil {
			return nil, fmt.Errorf("cannot start %s: %w", program, failure)
		}
		log, _ := os.ReadFile(filepath.Join(folder, "error.log")) // if there is one
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(output.String()+string(log)))
	}
	return front, nil
}

func (b *balancer) ready(ctx context.Context, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeoutCause(ctx, nginxLimit, errors.New("nginx does not answer"))
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
