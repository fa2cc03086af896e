package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/storeurl"
	"github.com/go-zookeeper/zk"
)

// ErrURL is wrapped by the errors of Open about the URL itself.
var ErrURL = storeurl.ErrURL

// Open is [New] with a URL. It makes no calls, and ctx is not used. A nil opts is fine;
// what the URL contains takes precedence over opts.
//
//	zookeeper://[user:password@]host:port,host:port[/root]
//
// Parameters of the URL: order=fair or unfair; modes=exclusive, which sets ExclusiveOnly, or
// all; timeout=10s, that of the session;
// create=false, to reject a missing root instead of creating it; acl=world, or creator to
// permit everything to the user alone; tls=true; ca=FILE, a certificate authority to trust;
// cert=FILE and key=FILE, the client's certificate.
//
// A password is written with %3F for '?', %40 for '@' and %25 for '%'. Errors contain
// no password.
func Open(_ context.Context, rawURL string, opts *Options) (*Store, error) {
	o := *cmp.Or(opts, &Options{})
	u, err := storeurl.Parse(rawURL, storeurl.Scheme{Name: "zookeeper", Port: strconv.Itoa(zk.DefaultPort)})
	if err == nil {
		err = o.apply(u)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	s, err := New(u.Hosts, &o)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	s.location = u.Location("zookeeper", strings.Trim(o.Root, "/"))
	switch { // not in the identity: all of them exclude each other
	case o.Order == Unfair:
		s.location.URL += "?order=unfair"
	case o.ExclusiveOnly:
		s.location.URL += "?modes=exclusive"
	}
	return s, nil
}

// Location implements driver.Locator.
func (s *Store) Location() driver.Location { return s.location }

// apply takes the user, the root and the parameters from a URL.
func (o *Options) apply(u *storeurl.URL) error {
	if u.User != "" {
		o.User, o.Password = u.User, u.Password
	}
	o.Root = cmp.Or(u.Path, o.Root)
	order, badOrder := u.TakeOne("order", "fair", "unfair")
	modes, badModes := u.TakeOne("modes", "all", "exclusive")
	create, badCreate := u.TakeOne("create", "true", "false")
	acl, badACL := u.TakeOne("acl", "world", "creator")
	config, badTLS := u.TakeTLS(false)
	if err := cmp.Or(badOrder, badModes, badCreate, badACL, badTLS); err != nil {
		return err
	}
	if order != "" {
		o.Order = map[string]Order{"fair": Fair, "unfair": Unfair}[order]
	}
	o.ExclusiveOnly = modes == "exclusive" || modes == "" && o.ExclusiveOnly
	o.RequireRoot = create == "false" || create == "" && o.RequireRoot
	o.TLS = cmp.Or(config, o.TLS)
	switch {
	case acl == "world":
		o.ACL = zk.WorldACL(zk.PermAll)
	case acl == "creator" && o.User == "":
		return errors.New("acl=creator needs a user")
	case acl == "creator":
		o.ACL = zk.AuthACL(zk.PermAll)
	}
	if timeout := u.Take("timeout"); timeout != "" {
		var err error
		if o.Timeout, err = time.ParseDuration(timeout); err != nil || o.Timeout < minTimeout || o.Timeout > maxTimeout {
			return fmt.Errorf("bad session timeout %q (want %v to %v)", timeout, minTimeout, maxTimeout)
		}
	}
	return u.Done("order, modes, timeout, create, acl, tls, ca, cert and key")
}
