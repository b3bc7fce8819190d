//go:build peers

package blob

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	azblob "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
	"github.com/strandline-io/strandline/stream"
	"github.com/strandline-io/strandline/stream/blob"
)

const benchBytes = 64 << 20

// BenchmarkUpload compares the sink with the SDK's own upload of as many bytes, with equal blocks, concurrency and
// checksums (which cost an emulator in JavaScript more than Azure).
func BenchmarkUpload(b *testing.B) {
	a := startAzurite(b)
	name := newContainer()
	store := a.open(b, name)
	if err := store.Ensure(b.Context()); err != nil {
		b.Fatal(err)
	}
	cred, err := service.NewSharedKeyCredential(blob.AzuriteAccount, blob.AzuriteKey)
	if err != nil {
		b.Fatal(err)
	}
	sdk, err := container.NewClientWithSharedKeyCredential(a.endpoint+"/"+name, cred, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("sdk", func(b *testing.B) {
		b.SetBytes(benchBytes)
		data := bytes.Repeat([]byte("x"), benchBytes)
		for i := range b.N {
			_, err := sdk.NewBlockBlobClient(fmt.Sprintf("sdk-%d-%d", b.N, i)).UploadStream(b.Context(), bytes.NewReader(data),
				&blockblob.UploadStreamOptions{BlockSize: blob.DefaultBlockBytes, Concurrency: blob.DefaultUploads,
					TransactionalValidation: azblob.TransferValidationTypeComputeCRC64()})
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("sink", func(b *testing.B) {
		b.SetBytes(benchBytes)
		s := blob.New("sink", store, blob.WithType[row](), blob.WithCodec(blob.Null))
		pad := strings.Repeat("x", 1000)
		for range b.N {
			w, err := s.Open(b.Context(), stream.SinkTask{JobIdentity: job, Sink: "sink", Task: "t", TaskNumber: int(containers.Add(1))})
			if err != nil {
				b.Fatal(err)
			}
			for n := range int64(benchBytes / 1000) {
				if err := w.Write(b.Context(), stream.SinkRecord{Value: row{N: n, Text: pad}, RowSequence: n}); err != nil {
					b.Fatal(err)
				}
			}
			w.Finish()
			token, err := w.Prepare(b.Context(), 1)
			if err == nil {
				err = w.Commit(b.Context(), token)
			}
			if err != nil {
				b.Fatal(err)
			}
			w.Close()
		}
	})
}
