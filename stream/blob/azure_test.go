package blob_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/strandline-io/strandline/stream/blob"
)

// transport answers requests to a service that is not there.
type transport func(*http.Request) (*http.Response, error)

func (f transport) Do(r *http.Request) (*http.Response, error) { return f(r) }

func respond(status int, code string) transport {
	return func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Status: http.StatusText(status), Request: r,
			Header: http.Header{"X-Ms-Error-Code": {code}}, Body: io.NopCloser(strings.NewReader(""))}, nil
	}
}

func fail(err error) transport {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

func azureStore(t *testing.T, tr transport, change ...func(*blob.AzureConfig)) blob.Store {
	t.Helper()
	cfg := blob.AzureConfig{Account: "account", Container: "container", Prefix: "p", Key: "c2VjcmV0a2V5", Transport: tr}
	for _, c := range change {
		c(&cfg)
	}
	s, err := blob.NewAzure(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAzureErrors: each answer of the service becomes the kind that the protocol needs, with a word on what to do.
func TestAzureErrors(t *testing.T) {
	id := blob.NewBlockID(blob.Nonce{}, 0)
	f := func(tr transport, kind error, want string) {
		t.Helper()
		s := azureStore(t, tr)
		for op, err := range map[string]error{
			"stage":   s.Stage(t.Context(), "a/x.avro", id, []byte("data")),
			"commit":  s.Commit(t.Context(), "a/x.avro", []blob.BlockID{id}, map[string]string{"k": "v"}),
			"look at": second(s.Props(t.Context(), "a/x.avro")),
			"read":    second(s.Read(t.Context(), "a/x.avro")),
		} {
			if !errors.Is(err, kind) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q and %q", op, err, kind, want)
			}
			text := err.Error()
			if !strings.Contains(text, "azblob://account/container/p: "+op+" a/x.avro") || strings.Contains(text, "\n") || strings.Contains(text, "c2VjcmV0a2V5") {
				t.Errorf("%s: %q", op, text)
			}
		}
	}
	f(respond(404, "BlobNotFound"), blob.ErrNotFound, "")
	f(respond(409, "BlobAlreadyExists"), blob.ErrExists, "")
	f(respond(412, "ConditionNotMet"), blob.ErrExists, "")
	f(respond(403, "UnauthorizedBlobOverwrite"), blob.ErrExists, "")
	f(respond(400, "InvalidBlockList"), blob.ErrBlockList, "")
	f(respond(409, "BlockCountExceedsLimit"), blob.ErrBlockCount, "")
	f(respond(404, "ContainerNotFound"), blob.ErrRefused, `create container "container"`)
	f(respond(404, "ResourceNotFound"), blob.ErrRefused, `is account "account" right`)
	f(respond(404, ""), blob.ErrRefused, "that answer is not about a blob")
	f(respond(403, "AuthenticationFailed"), blob.ErrRefused, "check AZURE_STORAGE_KEY")
	f(respond(403, "AuthorizationPermissionMismatch"), blob.ErrRefused, "Storage Blob Data Contributor")
	f(respond(401, ""), blob.ErrRefused, "may not do that")
	f(respond(403, "AuthorizationFailure"), blob.ErrRefused, "check AZURE_STORAGE_KEY") // Azurite's word for a wrong key
	f(respond(403, "AuthorizationFailure"), blob.ErrRefused, "firewall")
	f(respond(409, "LeaseIdMissing"), blob.ErrRefused, "a lease")
	f(respond(409, "ContainerBeingDeleted"), blob.ErrTemporary, "")
	f(respond(400, "InvalidHeaderValue"), blob.ErrInvalid, "--skipApiVersionCheck")
	f(respond(400, "InvalidMetadata"), blob.ErrInvalid, "HTTP 400 InvalidMetadata")
	for _, status := range []int{408, 429, 500, 502, 503, 504} {
		f(respond(status, ""), blob.ErrTemporary, "HTTP")
	}
	f(respond(503, "ServerBusy"), blob.ErrTemporary, "ServerBusy")
	f(fail(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), blob.ErrTemporary, "nothing listens at https://account.blob.core.windows.net")
	f(fail(&net.DNSError{Err: "no such host", Name: "account.blob.core.windows.net", IsNotFound: true}), blob.ErrTemporary, `is account "account" spelled right`)
	f(fail(io.ErrUnexpectedEOF), blob.ErrTemporary, "unexpected EOF")
	f(fail(context.DeadlineExceeded), blob.ErrTemporary, "deadline")
	f(fail(context.Canceled), blob.ErrTemporary, "canceled")
}

// TestAzureNeverRepeatsByItself: repeats are this package's, or they would multiply.
func TestAzureNeverRepeatsByItself(t *testing.T) {
	calls := 0
	s := azureStore(t, func(r *http.Request) (*http.Response, error) {
		calls++
		return respond(503, "ServerBusy")(r)
	})
	s.Props(t.Context(), "x")
	if calls != 1 {
		t.Errorf("%d requests for one call", calls)
	}
}

func TestAzureSecretsStayOut(t *testing.T) {
	s := azureStore(t, fail(errors.New("Get https://account?sig=TOPSECRET: broken")), func(c *blob.AzureConfig) {
		c.Key, c.SAS = "", "?sig=TOPSECRET"
	})
	if _, err := s.Props(t.Context(), "x"); err == nil || strings.Contains(err.Error(), "TOPSECRET") {
		t.Error(err)
	}
}

func TestAzureEnsure(t *testing.T) {
	f := func(noCreate bool, head, create string, kind error, want string) {
		t.Helper()
		var seen []string
		s := azureStore(t, func(r *http.Request) (*http.Response, error) {
			seen = append(seen, r.Method)
			code := head
			if r.Method == http.MethodPut {
				code = create
			}
			status := map[string]int{"BlobNotFound": 404, "ContainerNotFound": 404, "": 201, "ContainerAlreadyExists": 409}[code]
			if status == 0 {
				status = 403
			}
			return respond(status, code)(r)
		}, func(c *blob.AzureConfig) { c.NoCreate = noCreate })
		err := s.Ensure(t.Context())
		if kind == nil && err != nil || kind != nil && (!errors.Is(err, kind) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s, %s: %v, want %v and %q", head, create, err, kind, want)
		}
		if noCreate && len(seen) > 1 {
			t.Errorf("tried to create: %v", seen)
		}
	}
	f(false, "BlobNotFound", "", nil, "")
	f(false, "ContainerNotFound", "", nil, "")
	f(false, "ContainerNotFound", "ContainerAlreadyExists", nil, "") // another starter was faster
	f(false, "ContainerNotFound", "AuthorizationPermissionMismatch", blob.ErrRefused, "az storage container create --account-name account --name container")
	f(true, "ContainerNotFound", "", blob.ErrRefused, `create container "container"`)
	f(false, "AuthenticationFailed", "", blob.ErrRefused, "AZURE_STORAGE_KEY")
}

// TestAzureLetsGoOfTheBytes: a transport may read a body after the call has ended; the bytes are then no longer ours.
func TestAzureLetsGoOfTheBytes(t *testing.T) {
	var body io.Reader
	s := azureStore(t, func(r *http.Request) (*http.Response, error) {
		body = r.Body
		return nil, context.Canceled
	})
	s.Stage(t.Context(), "x", blob.NewBlockID(blob.Nonce{}, 0), []byte("data"))
	if data, err := io.ReadAll(body); err == nil || len(data) > 0 {
		t.Errorf("%q could be read after the call, %v", data, err)
	}
}
