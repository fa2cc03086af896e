package zklock

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dlock-go/dlock/internal/storeurl"
	"github.com/go-zookeeper/zk"
)

// Open is [New] with everything in a URL.
//
//	zookeeper://[user:password@]host:port,host:port[/root]
//
// Parameters: order=fair or unfair; timeout=10s, that of the session; create=false, to
// refuse a root that does not exist instead of creating it; acl=world or creator, where creator is the user and nobody else;
// tls=true; ca=FILE, a certificate authority to trust; cert=FILE and key=FILE, the
// client's certificate.
//
// A password is written with %3F for '?', %40 for '@' and %25 for '%'. Errors contain
// no password.
func Open(rawURL string) (*Store, error) {
	servers, opts, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	return New(servers, opts)
}

var errURL = errors.New("bad URL")

func parseURL(raw string) (servers []string, opts *Options, err error) {
	u, err := storeurl.Parse(raw, storeurl.Scheme{Name: "zookeeper", Port: strconv.Itoa(zk.DefaultPort)})
	if err == nil {
		opts = &Options{Root: u.Path, User: u.User, Password: u.Password}
		err = opts.take(u)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errURL, err)
	}
	return u.Hosts, opts, nil
}

// take takes the parameters.
func (o *Options) take(u *storeurl.URL) error {
	order, err := u.TakeOne("order", "fair", "unfair")
	if err != nil {
		return err
	}
	if order == "unfair" {
		o.Order = Unfair
	}
	create, err := u.TakeOne("create", "true", "false")
	if err != nil {
		return err
	}
	o.RequireRoot = create == "false"
	acl, err := u.TakeOne("acl", "world", "creator")
	if err != nil {
		return err
	}
	if acl == "creator" {
		if o.User == "" {
			return errors.New("acl=creator needs a user")
		}
		o.ACL = zk.AuthACL(zk.PermAll)
	}
	if timeout := u.Take("timeout"); timeout != "" {
		if o.Timeout, err = time.ParseDuration(timeout); err != nil || o.Timeout <= 0 {
			return fmt.Errorf("timeout is %q, not a duration such as 10s", timeout)
		}
	}
	if o.TLS, err = u.TakeTLS(false); err != nil {
		return err
	}
	return u.Done("order, timeout, create, acl, tls, ca, cert and key")
}
