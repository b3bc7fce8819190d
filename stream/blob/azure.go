package blob

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	azblob "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/strandline-io/strandline/internal/failpoint"
)

// AzureConfig says where blobs go in Azure and who we are there. Exactly one of Key, SAS and Credential is used, the
// first that is set; with none, azidentity's default chain looks for an environment, workload, managed or command line
// identity. A SAS needs the permissions read, create, write and list.
type AzureConfig struct {
	Account   string
	Container string // 3 to 63 lower case letters, digits, hyphens; made at start if missing
	Prefix    string // of all blob names; optional
	// Endpoint is the service's URL. Default https://<account>.blob.core.windows.net; for Azurite something like
	// http://127.0.0.1:10000/devstoreaccount1.
	Endpoint   string
	Key        string // the account's shared key, base64
	SAS        string // a shared access signature, as a query string
	Credential azcore.TokenCredential
	// NoCreate: a missing container is an error.
	NoCreate bool
	// Transport sends requests; nil uses the SDK's.
	Transport policy.Transporter
}

// AzuriteAccount and AzuriteKey are the account that every Azurite has.
const (
	AzuriteAccount = "devstoreaccount1"
	AzuriteKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

var containerName = regexp.MustCompile(`^[a-z0-9](-?[a-z0-9]){2,62}$`)

// azure is a Store in one container of Azure Blob Storage. The SDK's own repeats are off: they are this package's.
type azure struct {
	cfg    AzureConfig
	client *container.Client
	where  string
	secret string // the SAS, never to be shown
}

// NewAzure returns the store. It makes no request.
func NewAzure(cfg AzureConfig) (Store, error) {
	cfg.Prefix = strings.Trim(cfg.Prefix, "/")
	where := "azblob://" + strings.TrimSuffix(cfg.Account+"/"+cfg.Container+"/"+cfg.Prefix, "/")
	if cfg.Account == "" || !containerName.MatchString(cfg.Container) || len(cfg.Container) > 63 {
		return nil, fmt.Errorf("%s: an account is needed, and a container name of 3 to 63 lower case letters, digits and "+
			"single hyphens", where)
	}
	if len(cfg.Prefix) > 256 {
		return nil, fmt.Errorf("%s: the prefix has %d bytes, at most 256 are allowed", where, len(cfg.Prefix))
	}
	if cfg.Endpoint == "" {
		cfg.Endpoint = "https://" + cfg.Account + ".blob.core.windows.net"
	}
	endpoint, err := url.Parse(cfg.Endpoint)
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "https" && endpoint.Scheme != "http" {
		return nil, fmt.Errorf("%s: endpoint %q is no http or https URL", where, cfg.Endpoint)
	}
	a := &azure{cfg: cfg, where: where, secret: strings.TrimPrefix(cfg.SAS, "?")}
	base := strings.TrimSuffix(cfg.Endpoint, "/") + "/" + cfg.Container
	options := &container.ClientOptions{}
	options.Retry.MaxRetries = -1
	options.Transport = cfg.Transport
	options.Telemetry.ApplicationID = "strandline"
	switch {
	case cfg.Key != "":
		var cred *azblob.SharedKeyCredential
		if cred, err = azblob.NewSharedKeyCredential(cfg.Account, cfg.Key); err == nil {
			a.client, err = container.NewClientWithSharedKeyCredential(base, cred, options)
		} else {
			err = errors.New("the account key is not base64: copy it again from the portal's \"Access keys\"")
		}
	case a.secret != "":
		a.client, err = container.NewClientWithNoCredential(base+"?"+a.secret, options)
	default:
		if cfg.Credential == nil {
			cfg.Credential, err = azidentity.NewDefaultAzureCredential(nil)
		}
		if err == nil {
			a.client, err = container.NewClient(base, cfg.Credential, options)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	return a, nil
}

func (a *azure) String() string { return a.where }

// path is the blob's name in the container.
func (a *azure) path(name string) string {
	if a.cfg.Prefix == "" {
		return name
	}
	return a.cfg.Prefix + "/" + name
}

func (a *azure) blob(name string) *blockblob.Client { return a.client.NewBlockBlobClient(a.path(name)) }

// azureCRC64 is the polynomial of the service's checksums.
var azureCRC64 = crc64.MakeTable(0x9A6C9329AC4BC9B5)

func encodeID(id BlockID) string { return base64.StdEncoding.EncodeToString(id[:]) }

// probeName is a blob that nobody makes: looking for it tells a missing container from an empty one with the permission
// that the sink needs anyway.
const probeName = "_strandline-probe"

func (a *azure) Ensure(ctx context.Context) error {
	_, err := a.blob(probeName).GetProperties(ctx, nil)
	if err = a.error("look for container", "", err); err == nil || errors.Is(err, ErrNotFound) {
		return nil
	}
	if !errors.Is(err, errNoContainer) || a.cfg.NoCreate {
		return err
	}
	_, err = a.client.Create(ctx, nil)
	err = a.error("create container", "", err)
	var e *StoreError
	if errors.As(err, &e) && e.Kind == ErrRefused {
		e.Advice = fmt.Sprintf("container %q does not exist and these credentials may not create it: create it (az storage "+
			"container create --account-name %s --name %s), or use credentials that may", a.cfg.Container, a.cfg.Account, a.cfg.Container)
	}
	if errors.Is(err, ErrExists) {
		return nil
	}
	return err
}

// body is a block being sent. The SDK's transport may read a body after the call has returned; detach ends that, so
// that the caller may use the bytes again.
type body struct {
	mu   sync.Mutex
	r    *bytes.Reader
	gone bool
}

var errDetached = errors.New("the call has ended")

func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return 0, errDetached
	}
	return b.r.Read(p)
}

func (b *body) Seek(offset int64, whence int) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return 0, errDetached
	}
	return b.r.Seek(offset, whence)
}

func (b *body) Close() error { return nil }

func (b *body) detach() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone = true
}

func (a *azure) Stage(ctx context.Context, name string, id BlockID, data []byte) error {
	b := &body{r: bytes.NewReader(data)}
	defer b.detach()
	// The SDK would compute the checksum from a copy of the block.
	sum := crc64.Checksum(data, azureCRC64)
	_, err := a.blob(name).StageBlock(ctx, encodeID(id), b, &blockblob.StageBlockOptions{
		TransactionalValidation: azblob.TransferValidationTypeCRC64(sum),
	})
	if err == nil {
		failpoint.Hit("azure.staged")
	}
	return a.error("stage", name, err)
}

func (a *azure) Commit(ctx context.Context, name string, blocks []BlockID, metadata map[string]string) error {
	ids := make([]string, len(blocks))
	for i, id := range blocks {
		ids[i] = encodeID(id)
	}
	meta := map[string]*string{}
	for k, v := range metadata {
		meta[k] = &v
	}
	anyTag, contentType := azcore.ETagAny, "application/vnd.apache.avro"
	if strings.HasSuffix(name, ".json") {
		contentType = "application/json"
	}
	_, err := a.blob(name).CommitBlockList(ctx, ids, &blockblob.CommitBlockListOptions{
		Metadata:         meta,
		HTTPHeaders:      &azblob.HTTPHeaders{BlobContentType: &contentType},
		AccessConditions: &azblob.AccessConditions{ModifiedAccessConditions: &azblob.ModifiedAccessConditions{IfNoneMatch: &anyTag}},
	})
	if err == nil {
		failpoint.Hit("azure.published")
	}
	return a.error("commit", name, err)
}

func (a *azure) Props(ctx context.Context, name string) (Props, error) {
	resp, err := a.blob(name).GetProperties(ctx, nil)
	if err != nil {
		return Props{}, a.error("look at", name, err)
	}
	p := Props{Metadata: map[string]string{}}
	if resp.ContentLength != nil {
		p.SizeBytes = *resp.ContentLength
	}
	for k, v := range resp.Metadata {
		if v != nil {
			p.Metadata[strings.ToLower(k)] = *v
		}
	}
	return p, nil
}

func (a *azure) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	resp, err := a.blob(name).DownloadStream(ctx, nil)
	if err != nil {
		return nil, a.error("read", name, err)
	}
	return resp.Body, nil
}

func (a *azure) Delete(ctx context.Context, name string) error {
	_, err := a.blob(name).Delete(ctx, nil)
	return a.error("delete", name, err)
}

func (a *azure) List(ctx context.Context, prefix string, visit func(Entry) error) error {
	full := a.path(prefix)
	pager := a.client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &full})
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return a.error("list", prefix, err)
		}
		for _, item := range page.Segment.BlobItems {
			if item.Name == nil || item.Properties == nil || item.Properties.ContentLength == nil {
				continue
			}
			name := (*item.Name)[len(full)-len(prefix):]
			if err := visit(Entry{Name: name, SizeBytes: *item.Properties.ContentLength}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *azure) Uncommitted(ctx context.Context, name string) ([]string, error) {
	resp, err := a.blob(name).GetBlockList(ctx, blockblob.BlockListTypeUncommitted, nil)
	if err = a.error("list blocks of", name, err); err != nil {
		if errors.Is(err, ErrNotFound) {
			return nil, nil
		}
		return nil, err
	}
	ids := make([]string, 0, len(resp.UncommittedBlocks))
	for _, b := range resp.UncommittedBlocks {
		if b.Name == nil {
			continue
		}
		id, err := base64.StdEncoding.DecodeString(*b.Name)
		if err != nil {
			id = []byte(*b.Name)
		}
		ids = append(ids, string(id))
	}
	return ids, nil
}
