package blob

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/strandline-io/strandline/internal/vfs"
)

// The environment variables that OpenStore reads, as Azure's own tools name them.
const (
	EnvConnectionString = "AZURE_STORAGE_CONNECTION_STRING"
	EnvKey              = "AZURE_STORAGE_KEY"
	EnvSAS              = "AZURE_STORAGE_SAS_TOKEN"
	EnvEndpoint         = "AZURE_STORAGE_SERVICE_ENDPOINT"
)

// StoreOption changes how OpenStore opens a store.
type StoreOption func(*storeOptions)

type storeOptions struct {
	getenv func(string) string
	azure  AzureConfig
}

// WithCredential signs in to Azure with credential, whatever the environment says.
func WithCredential(credential azcore.TokenCredential) StoreOption {
	return func(o *storeOptions) { o.azure.Credential = credential }
}

// WithEnv reads environment variables through getenv instead of os.Getenv.
func WithEnv(getenv func(string) string) StoreOption {
	return func(o *storeOptions) { o.getenv = getenv }
}

// WithoutCreate makes a missing container an error instead of creating it.
func WithoutCreate() StoreOption { return func(o *storeOptions) { o.azure.NoCreate = true } }

// OpenStore opens the store that a URL names. It makes no request and no folder: Store.Ensure does.
//
//   - file:///absolute/folder, file:relative/folder
//   - azblob://account/container/prefix (the prefix is optional), with the first of these credentials that is there:
//     WithCredential, AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, then what
//     azidentity's default chain finds (environment, workload or managed identity, az login).
//     AZURE_STORAGE_SERVICE_ENDPOINT, or ?endpoint=URL, replaces https://account.blob.core.windows.net.
//     ?create=false makes a missing container an error.
func OpenStore(rawURL string, options ...StoreOption) (Store, error) {
	o := storeOptions{getenv: os.Getenv}
	for _, option := range options {
		option(&o)
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("blob store %q is no URL: write file:///folder or azblob://account/container/prefix", rawURL)
	}
	switch u.Scheme {
	case "file":
		return openFolder(u, rawURL)
	case "azblob":
		return openAzure(u, o)
	}
	return nil, fmt.Errorf("blob store %q: scheme %q is not known: write file:///folder or azblob://account/container/prefix",
		rawURL, u.Scheme)
}

func openFolder(u *url.URL, rawURL string) (Store, error) {
	path := u.Path
	if u.Opaque != "" {
		var err error
		if path, err = url.PathUnescape(u.Opaque); err != nil {
			return nil, fmt.Errorf("blob store %q: %w", rawURL, err)
		}
	}
	if u.Host != "" || path == "" {
		return nil, fmt.Errorf("blob store %q: a folder is file:///absolute/path or file:relative/path", rawURL)
	}
	if len(path) > 2 && path[0] == '/' && path[2] == ':' {
		path = path[1:] // file:///C:/folder
	}
	path = filepath.FromSlash(path)
	return NewFolder(vfs.OS(path), "file:"+path, nil), nil
}

func openAzure(u *url.URL, o storeOptions) (Store, error) {
	cfg := o.azure
	cfg.Account = u.Host
	cfg.Container, cfg.Prefix, _ = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	query := u.Query()
	for key := range query {
		if key != "endpoint" && key != "create" {
			return nil, fmt.Errorf("blob store %s: parameter %q is not known: there are endpoint and create", u.Redacted(), key)
		}
	}
	if query.Get("create") == "false" {
		cfg.NoCreate = true
	}
	if cfg.Credential == nil {
		if cs := o.getenv(EnvConnectionString); cs != "" {
			if err := cfg.connectionString(cs); err != nil {
				return nil, fmt.Errorf("blob store %s: %s: %w", u.Redacted(), EnvConnectionString, err)
			}
		} else {
			cfg.Key, cfg.SAS = o.getenv(EnvKey), o.getenv(EnvSAS)
		}
	}
	if e := o.getenv(EnvEndpoint); e != "" {
		cfg.Endpoint = e
	}
	if e := query.Get("endpoint"); e != "" {
		cfg.Endpoint = e
	}
	return NewAzure(cfg)
}

// connectionString fills c from the fields that Azure's portal puts into one line. Its account must be c's.
func (c *AzureConfig) connectionString(text string) error {
	fields := map[string]string{}
	for part := range strings.SplitSeq(text, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		key, value, ok := strings.Cut(part, "=")
		if !ok {
			return fmt.Errorf("it is not a list of key=value: copy it again from the portal's \"Access keys\"")
		}
		fields[strings.ToLower(key)] = value
	}
	account := fields["accountname"]
	if fields["usedevelopmentstorage"] == "true" {
		account, c.Key, c.Endpoint = AzuriteAccount, AzuriteKey, "http://127.0.0.1:10000/"+AzuriteAccount
	}
	if account != "" && account != c.Account {
		return fmt.Errorf("it is for account %q, the URL says %q", account, c.Account)
	}
	if fields["accountkey"] != "" {
		c.Key = fields["accountkey"]
	}
	c.SAS = fields["sharedaccesssignature"]
	switch {
	case fields["blobendpoint"] != "":
		c.Endpoint = fields["blobendpoint"]
	case fields["endpointsuffix"] != "":
		scheme := fields["defaultendpointsprotocol"]
		if scheme == "" {
			scheme = "https"
		}
		c.Endpoint = scheme + "://" + c.Account + ".blob." + fields["endpointsuffix"]
	}
	if c.Key == "" && c.SAS == "" {
		return fmt.Errorf("it holds neither AccountKey nor SharedAccessSignature")
	}
	return nil
}
