package blob_test

import (
	"strings"
	"testing"

	"github.com/strandline-io/strandline/stream/blob"
)

func TestOpenStore(t *testing.T) {
	const key = "c2VjcmV0a2V5"
	env := map[string]string{}
	open := func(url string) (blob.Store, error) {
		return blob.OpenStore(url, blob.WithEnv(func(name string) string { return env[name] }))
	}
	f := func(url, want string) {
		t.Helper()
		s, err := open(url)
		if err != nil || s.String() != want {
			t.Errorf("%s: %v, %v; want %s", url, s, err, want)
		}
	}
	bad := func(url, want string) {
		t.Helper()
		_, err := open(url)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v, want %q and no secret", url, err, want)
		}
	}
	f("file:///tmp/blobs", "file:/tmp/blobs")
	f("file:///tmp/with%20space", "file:/tmp/with space")
	f("file:relative/blobs", "file:relative/blobs")
	bad("file://host/path", "file:///absolute/path")
	bad("file:", "file:///absolute/path")
	bad("s3://bucket", `scheme "s3" is not known`)
	bad("/tmp/blobs", "write file:///folder")
	bad("::", "is no URL")

	env[blob.EnvKey] = key
	f("azblob://account/container/a/b", "azblob://account/container/a/b")
	f("azblob://account/container/a/b/", "azblob://account/container/a/b")
	f("azblob://account/container", "azblob://account/container")
	f("azblob://devstoreaccount1/container?endpoint=http://127.0.0.1:1/devstoreaccount1&create=false", "azblob://devstoreaccount1/container")
	bad("azblob://account", "container name")
	bad("azblob:///container", "an account is needed")
	bad("azblob://account/ab", "3 to 63")
	bad("azblob://account/UPPER", "3 to 63")
	bad("azblob://account/two--hyphens", "3 to 63")
	bad("azblob://account/"+strings.Repeat("x", 64), "3 to 63")
	bad("azblob://account/container/"+strings.Repeat("x", 300), "prefix has 300 bytes")
	bad("azblob://account/container?sas=x", `parameter "sas" is not known`)
	bad("azblob://account/container?endpoint=ftp://x", "no http or https URL")
	env[blob.EnvKey] = "not base64!"
	bad("azblob://account/container", "is not base64")

	env[blob.EnvKey], env[blob.EnvSAS] = "", "?sv=2024&sig="+key
	f("azblob://account/container", "azblob://account/container")
	env[blob.EnvEndpoint] = "nonsense"
	bad("azblob://account/container", `endpoint "nonsense"`)
	delete(env, blob.EnvEndpoint)

	connection := func(text string) { env[blob.EnvConnectionString] = text }
	connection("DefaultEndpointsProtocol=https;AccountName=account;AccountKey=" + key + ";EndpointSuffix=core.windows.net")
	f("azblob://account/container", "azblob://account/container")
	bad("azblob://other/container", `it is for account "account", the URL says "other"`)
	connection("UseDevelopmentStorage=true")
	f("azblob://devstoreaccount1/container", "azblob://devstoreaccount1/container")
	connection("BlobEndpoint=https://x/;SharedAccessSignature=sig=" + key)
	f("azblob://account/container", "azblob://account/container")
	connection("AccountName=account")
	bad("azblob://account/container", "neither AccountKey nor SharedAccessSignature")
	connection("hello " + key)
	bad("azblob://account/container", "not a list of key=value")
	connection("")
	env[blob.EnvSAS] = ""
	f("azblob://account/container", "azblob://account/container") // azidentity's chain; no request is made yet
}
