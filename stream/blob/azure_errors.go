package blob

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
)

// errNoContainer is in the chain of an error that a missing container caused.
var errNoContainer = errors.New("the container does not exist")

// azureCodes are the codes of the service whose kind is not told by the HTTP status.
var azureCodes = map[bloberror.Code]error{
	bloberror.BlobNotFound:              ErrNotFound,
	bloberror.BlobAlreadyExists:         ErrExists,
	bloberror.ContainerAlreadyExists:    ErrExists,
	bloberror.ConditionNotMet:           ErrExists,
	bloberror.UnauthorizedBlobOverwrite: ErrExists, // a SAS without the permission to replace says so
	"BlobImmutableDueToPolicy":          ErrExists,
	bloberror.InvalidBlockList:          ErrBlockList,
	bloberror.BlockCountExceedsLimit:    ErrBlockCount,
	bloberror.ContainerBeingDeleted:     ErrTemporary,
	bloberror.ServerBusy:                ErrTemporary,
	bloberror.OperationTimedOut:         ErrTemporary,
	bloberror.InternalError:             ErrTemporary,
	bloberror.MD5Mismatch:               ErrTemporary, // damaged on the way
	"Crc64Mismatch":                     ErrTemporary,
}

// error turns what the SDK returns into a *StoreError; nil stays nil. It keeps secrets out of the text.
func (a *azure) error(op, name string, err error) error {
	if err == nil {
		return nil
	}
	e := &StoreError{Op: op, Name: name, Where: a.where, Err: &quiet{err: err, text: a.redact(err.Error())}}
	var resp *azcore.ResponseError
	var nonRetriable interface{ NonRetriable() }
	switch {
	case errors.As(err, &resp):
		a.response(e, resp)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e.Kind = ErrTemporary
	case errors.As(err, &nonRetriable):
		e.Kind = ErrRefused
		e.Advice = "no credentials worked: set AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING, " +
			"or sign in (az login), or give this machine an identity"
		if strings.Contains(err.Error(), "not permitted for non TLS") {
			e.Advice = "a sign-in needs an https endpoint; use a key or a SAS with this one"
		}
	default:
		a.network(e, err)
	}
	return e
}

// response judges an answer of the service.
func (a *azure) response(e *StoreError, resp *azcore.ResponseError) {
	code := bloberror.Code(resp.ErrorCode)
	e.Err = &quiet{err: resp, text: strings.TrimSpace(fmt.Sprintf("HTTP %d %s", resp.StatusCode, code))}
	if kind, ok := azureCodes[code]; ok {
		e.Kind = kind
		return
	}
	e.Kind = ErrInvalid
	switch {
	case code == bloberror.ContainerNotFound:
		e.Kind = ErrRefused
		e.Err = fmt.Errorf("%w: %w", errNoContainer, e.Err)
		e.Advice = fmt.Sprintf("create container %q, or let the job do so", a.cfg.Container)
	case resp.StatusCode == 401 || resp.StatusCode == 403:
		e.Kind = ErrRefused
		e.Advice = a.whyNot(code)
	case resp.StatusCode == 404:
		e.Kind = ErrRefused
		e.Advice = fmt.Sprintf("that answer is not about a blob: is account %q right, and the endpoint %s?", a.cfg.Account, a.endpoint())
	case resp.StatusCode == 408 || resp.StatusCode == 429 || resp.StatusCode >= 500:
		e.Kind = ErrTemporary
	case resp.StatusCode == 409 || resp.StatusCode == 412:
		e.Kind = ErrRefused
		e.Advice = "something else holds that blob or the account: a lease, a policy, or a change under way"
	case code == bloberror.InvalidHeaderValue:
		e.Advice = "if the endpoint is an Azurite, it may be too old for the API version of this program: start it with --skipApiVersionCheck"
	}
}

// whyNot says what may be wrong with credentials that were refused.
func (a *azure) whyNot(code bloberror.Code) string {
	wrong := fmt.Sprintf("the credentials for account %q are wrong: check AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or "+
		"AZURE_STORAGE_CONNECTION_STRING (was the key changed? is the SAS over? is this machine's clock right?)", a.cfg.Account)
	may := fmt.Sprintf("they need read, create, write and list on container %q (role \"Storage Blob Data Contributor\"), and "+
		"the account's firewall must let this machine in", a.cfg.Container)
	switch code {
	case bloberror.AuthenticationFailed, bloberror.InvalidAuthenticationInfo, bloberror.NoAuthenticationInformation:
		return wrong
	case bloberror.AuthorizationPermissionMismatch:
		return "these credentials may not do that: " + may
	}
	return "either " + wrong + ", or they may not do that: " + may
}

// network judges an error before any answer.
func (a *azure) network(e *StoreError, err error) {
	e.Kind = ErrTemporary
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		e.Advice = fmt.Sprintf("nothing listens at %s: is the service (or Azurite) running, and the endpoint right?", a.endpoint())
	case errors.As(err, &dns) && dns.IsNotFound:
		e.Advice = fmt.Sprintf("host %s is not known: is account %q spelled right, and the network up?", dns.Name, a.cfg.Account)
	case errors.As(err, &certificate):
		e.Kind = ErrRefused
		e.Advice = fmt.Sprintf("the certificate of %s is not trusted: is a proxy in between? is the endpoint right?", a.endpoint())
	}
}

func (a *azure) endpoint() string { return a.cfg.Endpoint }

// redact removes the SAS from a text.
func (a *azure) redact(s string) string {
	if a.secret != "" {
		s = strings.ReplaceAll(s, a.secret, "<SAS>")
	}
	return s
}

// quiet is an error with a text of ours: the SDK's runs over many lines and may hold the URL with its signature.
type quiet struct {
	err  error
	text string
}

func (q *quiet) Error() string { return q.text }
func (q *quiet) Unwrap() error { return q.err }
